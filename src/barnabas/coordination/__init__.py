"""The znode tree that holds cluster metadata."""
