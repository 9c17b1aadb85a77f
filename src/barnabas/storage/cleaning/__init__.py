"""Compaction: which log is cleaned next, and the segments that take the place of others."""
