"""Records with the schemas of a registry: their bytes to columns, and columns to bytes.

avro.py, json_schema.py, protobuf.py: one schema language each, without Spark. decoding.py, encoding.py: a batch of Arrow
columns at a time, on the executors. columns.py: what the driver compiles of them.
"""
