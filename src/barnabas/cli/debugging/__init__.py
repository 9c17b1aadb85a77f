"""`barnabas debug`."""
