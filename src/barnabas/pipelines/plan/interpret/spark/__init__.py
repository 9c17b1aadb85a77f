"""Spark SQL's expressions in plain Python: read.py reads them, compute.py makes functions of them, and the others hold
Spark's functions by subject."""
