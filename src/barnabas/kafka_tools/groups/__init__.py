"""Groups of every type and their offsets: `kafka-consumer-groups` and the others."""
