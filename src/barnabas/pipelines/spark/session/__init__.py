"""Starts Spark on this machine or a cluster: its settings, Python workers, the class archive, what its log says."""
