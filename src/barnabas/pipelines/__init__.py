"""Data pipelines on Apache Spark."""
