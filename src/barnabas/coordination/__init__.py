"""The znode tree that stores cluster metadata."""
