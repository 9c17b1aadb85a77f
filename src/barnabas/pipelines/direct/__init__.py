"""Records that are made where their lines are read, past Spark's expressions: see planning.py."""
