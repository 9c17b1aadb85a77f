"""One module per HTTP service: its name, port and options, and how it is made."""
