"""Benchmarks: one command, several brokers side by side. See README.md."""
