"""Kafka's own tools (`kafka-topics` and the others), with Kafka's options and output."""
