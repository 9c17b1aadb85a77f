"""Schemas without I/O: their formats, their frames in records, conversion to and from JSON, rules, validation. Pure."""
