"""MirrorMaker 2: Kafka's three connectors that copy topics, offsets of groups and heartbeats between clusters, under
Kafka's names and with Kafka's internal topics."""
