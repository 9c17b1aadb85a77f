"""`barnabas group`, share groups included."""
