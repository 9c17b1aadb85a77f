"""`barnabas sql`: the server's command, and the shell."""
