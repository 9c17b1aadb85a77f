"""Inputs that are no files: each receives events and writes them to a spool, from which they are shipped."""
