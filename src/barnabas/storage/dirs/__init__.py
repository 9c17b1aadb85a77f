"""Log directories: opening the logs in them, deleting, restoring and moving logs, whose directories they are."""
