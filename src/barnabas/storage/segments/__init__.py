"""One segment of a log: its files, its indexes, checks of its batches, and what can be said about damage."""
