"""Makes Spark queries of a plan: relations become data frames, outputs rows for their sinks, both become queries."""
