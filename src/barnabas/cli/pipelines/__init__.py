"""Commands of the pipelines on Spark."""
