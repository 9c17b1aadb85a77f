"""`barnabas log dump`: what segment, index and snapshot files hold, as text."""
