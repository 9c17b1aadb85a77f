"""The brokers: versions, features, elections, transactions, metrics."""
