"""Streams groups (KIP-1071): the coordinator knows the topology of Kafka Streams and assigns its tasks."""
