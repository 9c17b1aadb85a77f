"""Materialized views: rows by their keys in an SQLite file, written micro-batch by micro-batch and looked up. No Spark."""
