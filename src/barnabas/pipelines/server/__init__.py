"""`barnabas pipelines serve`: one driver process that runs many named pipelines."""
