"""Kafka's tools for operators of a cluster: access rules, transactions, replicas, features, storage."""
