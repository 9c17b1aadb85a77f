"""One module for each API, by area; `broker/api/table.py` has a row for each."""
