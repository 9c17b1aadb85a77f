"""PURE: group membership protocols and committed offsets."""
