"""Handlers that write, read and find records."""
