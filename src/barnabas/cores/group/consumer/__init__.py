"""PURE: the consumer group protocol (KIP-848)."""
