"""Records in and out: the consoles, their formatters, and the old mirror maker."""
