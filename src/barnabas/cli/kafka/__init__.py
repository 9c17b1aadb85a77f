"""The tools that the field knows by name (`kafka-topics` and the others), with Kafka's options and output."""
