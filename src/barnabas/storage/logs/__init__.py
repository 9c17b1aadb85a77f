"""A log: its segments, reading and appending, its state besides the batches, recovery after a crash."""
