"""Logging, metrics, health."""
