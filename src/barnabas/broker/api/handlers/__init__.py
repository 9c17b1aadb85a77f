"""One module for each API, by area; `wire.apis` is the table that names them."""
