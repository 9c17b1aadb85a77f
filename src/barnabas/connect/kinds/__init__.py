"""The connectors, one file per kind."""
