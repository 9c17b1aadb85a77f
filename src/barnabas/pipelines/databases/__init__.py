"""Rows in the tables of databases, without Spark: for targets of pipelines and for connectors."""
