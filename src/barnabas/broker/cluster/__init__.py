"""Cluster metadata: the controller's executor, options, features, producer ids, internal topics."""
