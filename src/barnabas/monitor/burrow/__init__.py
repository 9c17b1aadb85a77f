"""Burrow's verdicts about groups, and its HTTP API. `window`, `verdicts` and `board` do no I/O and know no clock."""
