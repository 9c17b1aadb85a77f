"""A pipeline's plan: named relations and how they depend on each other, as plain data without Spark.

Pipeline files and the Python builder make `relations`, `plan_of` sorts and checks them, and `compiler/` makes data
frames of the plan.
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
