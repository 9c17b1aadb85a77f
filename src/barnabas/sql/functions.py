"""Functions of SQL in Python, for statements on a SQL server (`barnabas sql start --functions my_functions.py`).

    from barnabas.sql.functions import aggregate, scalar, table

    @scalar
    def risk(speed: float, limit: int) -> float:                  # RISK(speed, 80) of each row
        "how dangerous a speed is"
        return 0.0 if speed is None else max(0.0, speed - limit) / limit

    @aggregate(takes=["DOUBLE"], returns="DOUBLE")
    def median(values):                                           # MEDIAN(price) of each group: its values, without null
        return statistics.median(values)

    @table(name="WORDS", takes=["STRING"], returns="ARRAY<STRING>")
    def words_of(text):                                           # WORDS(line)
        return (text or "").split()

Types are SQL's, as texts, or taken from annotations: bool, int (BIGINT), float (DOUBLE), str, bytes, date, datetime
(TIMESTAMP), list[...] and dict[str, ...]. Null is None. What a function raises, or returns of another type, makes a dead
letter of the row. A package offers functions by entry points of the group `barnabas.sql_functions`: names of modules.
"""

from __future__ import annotations

import datetime
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, overload

FunctionKind = Literal["SCALAR", "AGGREGATE", "TABLE"]
GROUP: Final = "barnabas.sql_functions"
"""The group of entry points."""
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OF_ANNOTATIONS: Final[dict[Any, str]] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BYTES",
    datetime.date: "DATE",
    datetime.datetime: "TIMESTAMP",
}


class BadFunction(Exception):
    """A function that cannot be one of SQL; the message says why."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A function. takes: the types of its arguments. least: how many of them must be given. returns: the type of its
    result; of a table function an array."""

    name: str
    kind: FunctionKind
    code: Callable[..., Any]
    takes: tuple[str, ...]
    least: int
    returns: str
    doc: str


DECLARED: Final[dict[str, Declared]] = {}
"""The functions of all modules that have been imported, by their names."""
Code = typing.TypeVar("Code", bound=Callable[..., Any])


@overload
def scalar(code: Code, /) -> Code: ...
@overload
def scalar(
    *, name: str = "", takes: Sequence[str] | None = None, returns: str | None = None
) -> Callable[[Code], Code]: ...
def scalar(code: Any = None, /, **declaration: Any) -> Any:
    """Declares a function of the values of one row. Raises BadFunction."""
    return _declared("SCALAR", code, **declaration)


@overload
def aggregate(code: Code, /) -> Code: ...
@overload
def aggregate(
    *, name: str = "", takes: Sequence[str] | None = None, returns: str | None = None
) -> Callable[[Code], Code]: ...
def aggregate(code: Any = None, /, **declaration: Any) -> Any:
    """Declares a function of the values of a group: it gets a list; of several arguments, a list of tuples. All values of a
    group are kept. takes: the types of its arguments in SQL, to be given. Raises BadFunction."""
    return _declared("AGGREGATE", code, **declaration)


@overload
def table(code: Code, /) -> Code: ...
@overload
def table(
    *, name: str = "", takes: Sequence[str] | None = None, returns: str | None = None
) -> Callable[[Code], Code]: ...
def table(code: Any = None, /, **declaration: Any) -> Any:
    """Declares a function that makes several rows of one: it returns a list, whose elements are the rows' values. Raises
    BadFunction."""
    return _declared("TABLE", code, **declaration)


def _declared(
    kind: FunctionKind,
    code: Callable[..., Any] | None,
    *,
    name: str = "",
    takes: Sequence[str] | None = None,
    returns: str | None = None,
) -> Any:
    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        called = (name or function.__name__).upper()
        if not NAME.fullmatch(called):
            raise BadFunction(f"{called!r} is not a name of a function")
        try:
            hints = typing.get_type_hints(function)
        except Exception as error:
            raise BadFunction(f"{called}: its annotations cannot be read: {error}") from None
        parameters = list(inspect.signature(function).parameters.values())
        if kind == "AGGREGATE" and takes is None:
            raise BadFunction(
                f"{called}: an aggregate needs takes, the types of its arguments, like takes=['DOUBLE']"
            )
        types = (
            tuple(takes)
            if takes is not None
            else tuple(_sql(hints.get(p.name), called, p.name) for p in parameters)
        )
        least = len(types)
        if kind != "AGGREGATE":
            if len(types) != len(parameters) or any(
                p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters
            ):
                raise BadFunction(
                    f"{called} has {len(parameters)} parameters, but takes {len(types)} types; each needs one"
                )
            least = sum(p.default is p.empty for p in parameters)
        result = returns or _sql(hints.get("return"), called, "return")
        doc = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        DECLARED[called] = Declared(called, kind, function, types, least, result, doc)
        return function

    return declare if code is None else declare(code)


def _sql(hint: Any, called: str, where: str) -> str:
    """The type of SQL that an annotation means. Raises BadFunction."""
    sql_type = OF_ANNOTATIONS.get(hint)
    if sql_type is not None:
        return sql_type
    inner = [one for one in typing.get_args(hint) if one is not type(None)]
    origin = typing.get_origin(hint)
    if origin is list and inner:
        return f"ARRAY<{_sql(inner[0], called, where)}>"
    if origin is dict and len(inner) == 2:
        return f"MAP<{_sql(inner[0], called, where)}, {_sql(inner[1], called, where)}>"
    if origin not in (None, list, dict) and len(inner) == 1:  # X | None
        return _sql(inner[0], called, where)
    problem = "has no annotation" if hint is None else f"is {hint}"
    raise BadFunction(
        f"{called}: {where} {problem}: annotate it with a type, or give takes and returns as types of SQL"
    )
