"""PURE: the classic group protocol."""
