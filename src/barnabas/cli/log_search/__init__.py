"""Log search."""
