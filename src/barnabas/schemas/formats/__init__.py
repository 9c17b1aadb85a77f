"""The three schema languages: parsing, printing in a canonical form, comparing. Pure."""
