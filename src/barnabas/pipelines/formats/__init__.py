"""Converts records with schemas of a registry from bytes to columns, and from columns to bytes.

avro.py, json_schema.py, protobuf.py: one schema language each, without Spark. decoding.py, encoding.py: a batch of Arrow
columns at a time, on the executors. columns.py: the Spark columns that the driver compiles.
"""
