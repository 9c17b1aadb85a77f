"""PURE: record batches, message sets, compression, control records."""
