"""Reads the parts of a pipeline (sources, relations, outputs, settings) from entries, for all fronts that have entries."""
