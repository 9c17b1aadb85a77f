"""Alerts by rules in a file. `document`, `rules`, `conditions` and `engine` do no I/O and know no clock; `sending` does."""
