"""Change data capture: every change of a database's rows as a record, in Debezium's envelope and under its options.

`options`, `naming`, `semantic` and `envelope` are what all databases share, without I/O; each database has a folder.
"""
