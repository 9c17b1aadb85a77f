"""Sinks into tables of files: Delta Lake and Iceberg. Offsets are stored in the commits of the tables, so that each record
is there once."""
