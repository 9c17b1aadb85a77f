"""Makes records of access-log lines without Spark's expressions, see planning.py."""
