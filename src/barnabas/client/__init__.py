"""A small client of our own for services and pipelines."""
