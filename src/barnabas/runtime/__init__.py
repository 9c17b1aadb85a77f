"""Sole owner of time, randomness, tasks and timers."""
