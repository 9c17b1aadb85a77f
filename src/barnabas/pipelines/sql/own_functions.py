"""Functions in Python (barnabas.sql.functions): found, and made known to statements, to the interpreter and to Spark.

Each call is a call of a function of Spark's that makes a value or says what is wrong; of the latter an error of the row is
made, so that it becomes a dead letter.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.fronts.sql.cursor import Cursor
from barnabas.pipelines.fronts.sql.dialect import tokens_of
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.functions import FUNCTIONS, Function, add_function
from barnabas.pipelines.fronts.sql.types import SqlType
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.interpret.spark.functions import add_own
from barnabas.pipelines.processing.engine import reason_of
from barnabas.pipelines.processing.values import BadValue, Type, type_named
from barnabas.sql.functions import DECLARED, GROUP, BadFunction, Declared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX: Final = "barnabas_python_"
"""What the functions of Spark are called by."""


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function of Python in Spark: its name there, its code, and the types of its arguments and of its result."""

    name: str
    declared: Declared
    takes: tuple[SqlType, ...]
    returns: SqlType

    @property
    def result(self) -> str:
        """What Spark's function returns, as DDL: the value, or what is wrong."""
        return f"struct<v:{'bigint' if self.returns.name == 'TIMESTAMP' else self.returns.spark},e:string>"

    def called(self) -> Callable[..., tuple[Any, str | None]]:
        """The function that Spark calls; it needs nothing of this object."""
        code, is_aggregate = self.declared.code, self.declared.kind == "AGGREGATE"
        kinds = tuple("moment" if kind.name == "TIMESTAMP" else kind.spark for kind in self.takes)
        result, of_time = self.returns.spark, self.returns.name == "TIMESTAMP"

        def call(*values: Any) -> tuple[Any, str | None]:
            return carried_out(code, kinds, result, of_time, is_aggregate, values)

        return call


def carried_out(
    code: Callable[..., Any],
    kinds: Sequence[str],
    result: str,
    of_time: bool,
    is_aggregate: bool,
    values: Sequence[Any],
) -> tuple[Any, str | None]:
    """Calls the code; its value, and what is wrong. kinds: of the arguments; `moment` for times in microseconds."""
    result_type: Type = type_named(result)
    try:
        if is_aggregate:
            returned = code(_rows(values[0], kinds))
        else:
            returned = code(*map(_argument, values, kinds))
        value = result_type.check(returned)
    except BadValue as error:
        return None, f"it returned what it may not: {error}"
    except Exception as error:
        return None, reason_of(error)
    if value is not None and of_time:
        value = result_type.plain(value)
    return value, None


def _rows(values: Any, kinds: Sequence[str]) -> list[Any]:
    """The values of a group."""
    if len(kinds) == 1:
        return [_argument(value, kinds[0]) for value in values or ()]
    rows = [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in values or ()]
    return [tuple(map(_argument, row, kinds)) for row in rows]


def _argument(value: Any, kind: str) -> Any:
    """A value of Spark's as the code gets it."""
    if value is None:
        return None
    if kind == "moment":
        return type_named("timestamp").restored(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    return value


# --- finding ------------------------------------------------------------------------------------------


def load_functions(names: Iterable[str]) -> None:
    """Imports the modules of entry points and those that are given, and makes their functions known. given: names of
    modules, or files. Raises PipelineError."""
    modules = [(point.value, point.load) for point in entry_points(group=GROUP)]
    modules += [(name, lambda name=name: _module(name)) for name in names]  # type: ignore[misc]
    for name, load in modules:
        try:
            load()
        except PipelineError:
            raise
        except BadFunction as error:
            raise PipelineError(f"functions of {name}: {error}") from None
        except Exception as error:
            raise PipelineError(f"functions of {name} cannot be imported: {reason_of(error)}") from error
    for declared in DECLARED.values():
        _make_known(declared)


def _module(name: str) -> ModuleType:
    """A module by its name, or by its file. Raises PipelineError."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise PipelineError(f"there is no file {path} with functions")
    own = f"barnabas_functions_{path.stem}"
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[own] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OWN: Final[dict[str, OwnFunction]] = {}


def _make_known(declared: Declared) -> None:
    """Raises PipelineError."""
    if declared.name in OWN and OWN[declared.name].declared is declared:
        return
    if declared.name in FUNCTIONS and declared.name not in OWN:
        raise PipelineError(
            f"{declared.name} is a function already: give the one of {declared.code.__module__} another name"
        )
    takes = tuple(_type(text, declared) for text in declared.takes)
    returns = _type(declared.returns, declared)
    if declared.kind == "TABLE" and returns.name != "ARRAY":
        raise PipelineError(f"{declared.name} makes rows, so it returns an array, not {returns}")
    own = OWN[declared.name] = OwnFunction(PREFIX + declared.name.lower(), declared, takes, returns)
    if declared.kind == "AGGREGATE":
        one = _spark_argument(0, takes[0]) if len(takes) == 1 else _struct(takes)
        variants = {len(takes): _checked(f"{own.name}(collect_list({one}))", returns)}
    else:
        variants = {
            count: _checked(f"{own.name}({', '.join(map(_spark_argument, range(count), takes))})", returns)
            for count in range(declared.least, len(takes) + 1)
        }
    add_function(
        Function(
            declared.name,
            variants,
            returns,
            declared.doc or f"a function of {declared.code.__module__}",
            aggregate=declared.kind == "AGGREGATE",
            makes_rows=declared.kind == "TABLE",
            of_tables=True,
            takes=takes,
        )
    )
    call = own.called()

    def interpreted(values: list[Any]) -> dict[str, Any]:
        value, problem = call(*values)
        return {"v": value, "e": problem}

    add_own(own.name, interpreted)


def _type(text: str, declared: Declared) -> SqlType:
    """Raises PipelineError."""
    try:
        cursor = Cursor(tokens_of(text), text)
        kind = cursor.type()
        if not cursor.ended:
            cursor.fail("nothing may follow a type")
    except SqlError as error:
        raise PipelineError(f"{declared.name}: {text!r} is not a type of SQL: {error.message}") from None
    if kind.name != "TIMESTAMP" and "timestamp" in kind.spark:
        raise PipelineError(
            f"{declared.name}: times inside of {text} are not supported; pass them on their own"
        )
    return kind


def _spark_argument(number: int, kind: SqlType) -> str:
    """An argument as Spark's function takes it; in a template."""
    cast = f"cast({{{number}}} as {kind.spark})"
    return f"unix_micros({cast})" if kind.name == "TIMESTAMP" else cast


def _struct(takes: Sequence[SqlType]) -> str:
    fields = [f"'a{number}', {_spark_argument(number, kind)}" for number, kind in enumerate(takes)]
    return f"named_struct({', '.join(fields)})"


def _checked(call: str, returns: SqlType) -> str:
    """The value of a call; its error is the row's. The call stands there once, as the only element of an array."""
    value = "timestamp_micros(r.v)" if returns.name == "TIMESTAMP" else "r.v"
    return f"element_at(transform(array({call}), r -> CASE WHEN r.e IS NULL THEN {value} ELSE raise_error(r.e) END), 1)"


# --- Spark --------------------------------------------------------------------------------------------


def register(spark: SparkSession) -> None:
    """Makes all functions known to a session, with the modules that workers may not have."""
    from pyspark.sql.functions import udf

    from barnabas.pipelines.processing.code import own_modules
    from barnabas.pipelines.spark.private import by_value

    for own in OWN.values():
        with by_value(own_modules(own.declared.code)):
            function = udf(own.called(), own.result).asNondeterministic()
            spark.udf.register(own.name, function)
