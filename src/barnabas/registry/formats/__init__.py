"""The three schema languages: read, write in one form, compare. Pure."""
