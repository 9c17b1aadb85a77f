"""A pipeline's plan, as plain data without Spark and without I/O: what every front makes, and all that the compiler reads.

Relations (relations.py) have an origin, typed operators (operators.py) with expressions (expressions.py), and, found by
inference.py: a schema, a key and a kind (schema.py). Outputs (outputs.py) are the sinks. `graph.plan_of` sorts, checks
(checks.py) and identifies all of them; pipeline.py says which queries run them, fingerprint.py whether a checkpoint was
made with the same plan.
"""
