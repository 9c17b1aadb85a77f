"""Handlers: what clients ask of the broker for themselves, and what it knows of them."""
