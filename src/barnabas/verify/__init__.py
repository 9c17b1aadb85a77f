"""Checkers: what they write is compared with what they read."""
