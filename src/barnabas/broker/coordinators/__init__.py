"""Coordinators: cores whose state is the log of an internal topic's partition."""
