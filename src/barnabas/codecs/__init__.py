"""JSON values to the bytes of records with schemas, and back: for the command line and the REST proxy."""


class Mismatch(ValueError):
    """Data that does not suit its format or its schema; the message says where and why."""
