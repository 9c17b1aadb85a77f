"""Handlers of share groups (KIP-932)."""
