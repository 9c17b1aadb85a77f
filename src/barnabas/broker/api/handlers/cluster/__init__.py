"""Handlers: the cluster, its brokers and their log directories."""
