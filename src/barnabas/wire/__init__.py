"""PURE: bytes <-> messages of the Kafka protocol."""
