"""Options as data; the server.properties loader; the generated reference."""
