"""The joins of a query, as relations of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp

from barnabas.pipelines.fronts.sql.dialect import spot_of_node
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import Translator, name_of
from barnabas.pipelines.fronts.sql.rows import TIME, Step
from barnabas.pipelines.fronts.sql.scopes import OpenQuery, Side
from barnabas.pipelines.fronts.sql.statements import JoinRef
from barnabas.pipelines.fronts.sql.types import common_type

GRACE: Final = "24 hours"
"""How late a row may come, if the statement does not say it: ksqlDB's default."""


@dataclass
class Joins:
    """The joins of a query. steps: further steps of its sources, by alias. timed: sources with an event time, with how late
    their rows may come."""

    relations: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    timed: dict[str, str] = field(default_factory=dict)


def joined(query: OpenQuery) -> Joins:
    joins = Joins()
    left, left_sides = query.sides[0].alias, [query.sides[0]]
    for number, join in enumerate(query.select.joins, 1):
        side = query.sides[number]
        pair = _pair(query, join, left_sides, side, number, joins)
        entry: dict[str, Any] = {"left": left, "right": side.alias, "by": pair, "kind": join.kind}
        of_streams = side.relation.kind == "STREAM"
        if of_streams:
            if join.within is None:
                raise SqlError(
                    f"the join of the streams {left} and {side.alias} needs WITHIN", join.source.spot
                )
            entry["within"] = {"before": join.within[0], "after": join.within[1]}
            for one in (*left_sides, side):
                one.pseudo.add(TIME)
                joins.timed[one.alias] = join.grace or GRACE
        elif join.within is not None:
            raise SqlError(f"WITHIN is for two streams; {side.alias} is a table", join.source.spot)
        left = f"{left}-{side.alias}"
        joins.relations[left] = {"join": entry}
        left_sides.append(side)
    return joins


def _pair(
    query: OpenQuery, join: JoinRef, left: list[Side], right: Side, number: int, joins: Joins
) -> dict[str, str]:
    """The fields that are equal, as the pipeline's join wants them. Raises SqlError."""
    on = equation(join)
    sides = []
    for node in (on.left, on.right):
        named = {name_of(c.args["table"]) for c in node.find_all(exp.Column) if c.args.get("table")}
        typed = Translator(query.scope).translate(node)
        owners = {side.alias for side in query.sides if side.alias in named or _owns(side, node)}
        sides.append((typed, node, owners))
    if right.alias in sides[0][2] and right.alias not in sides[1][2]:
        sides.reverse()
    if right.alias not in sides[1][2] or right.alias in sides[0][2]:
        raise SqlError(f"ON needs a column of {right.alias} on one side only", join.source.spot)
    kinds = [typed.type for typed, _, _ in sides]
    if common_type(kinds) is None and kinds[0] != kinds[1]:
        raise SqlError(
            f"ON compares {kinds[0]} with {kinds[1]}, which are never equal: CAST one of them",
            spot_of_node(on),
        )
    names = []
    for (typed, node, owners), allowed in zip(sides, (left, [right]), strict=True):
        if isinstance(node, exp.Column):
            names.append(typed.text.strip("`"))
            continue
        owner = next(side for side in allowed if side.alias in owners)
        called = f"{owner.alias}_join {number}"
        joins.steps.setdefault(owner.alias, []).append({"set": {called: typed.text}})
        names.append(called)
    return {names[0]: names[1]}


def equation(join: JoinRef) -> exp.EQ:
    """What ON says. Raises SqlError."""
    on = join.on.this if isinstance(join.on, exp.Paren) else join.on
    if not isinstance(on, exp.EQ):
        raise SqlError("ON compares one expression of each side, like ON a.id = b.id", join.source.spot)
    return on


def _owns(side: Side, node: exp.Expr) -> bool:
    return any(
        c.args.get("table") is None and name_of(c.this) in side.columns for c in node.find_all(exp.Column)
    )
