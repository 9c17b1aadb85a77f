"""One module per API: its request and response, for all their versions."""
