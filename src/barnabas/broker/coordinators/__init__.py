"""Coordinators: cores whose state is stored in a partition of an internal topic."""
