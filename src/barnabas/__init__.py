"""Barnabas: a Kafka-compatible streaming platform in Python, with data pipelines on Apache Spark."""

__version__ = "0.1.0"
