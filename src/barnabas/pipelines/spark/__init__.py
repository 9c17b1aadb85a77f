"""Spark without pipelines: sessions, the data source and sink `barnabas`, folders, and what is private to PySpark."""
