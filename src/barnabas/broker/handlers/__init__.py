"""One module per API family: thin, typed, stateless."""
