"""A pipeline's plan: named relations, what they are made of, and what follows from that. Plain data, no Spark.

Pipeline files and the Python builder make a plan (`relations`, put in order and checked by `plan_of`); `compiler.py` makes
data frames of it.
"""

from barnabas.pipelines.plan.graph import Plan, plan_of
from barnabas.pipelines.plan.relations import (
    Bounds,
    Deduplicate,
    Derived,
    EventTime,
    Explode,
    Filter,
    Join,
    Operator,
    Origin,
    Project,
    Relation,
    Scan,
    Union,
    operator_of,
)

__all__ = [
    "Bounds",
    "Deduplicate",
    "Derived",
    "EventTime",
    "Explode",
    "Filter",
    "Join",
    "Operator",
    "Origin",
    "Plan",
    "Project",
    "Relation",
    "Scan",
    "Union",
    "operator_of",
    "plan_of",
]
