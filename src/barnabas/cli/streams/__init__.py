"""`barnabas streams`."""
