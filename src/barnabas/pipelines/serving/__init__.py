"""Runs pipelines: one (`barnabas pipeline run`), or many in one driver process (`barnabas pipelines serve`)."""
