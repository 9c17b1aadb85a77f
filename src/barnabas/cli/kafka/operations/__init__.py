"""Kafka's tools for those who run a cluster: access rules, transactions, replicas, features, storage."""
