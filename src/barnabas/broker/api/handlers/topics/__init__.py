"""Handlers that list, create, change and delete topics and partitions."""
