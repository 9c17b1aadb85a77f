"""Commands that carry records: produce, consume, perf."""
