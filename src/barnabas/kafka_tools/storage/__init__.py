"""Files of a broker: `kafka-dump-log`, `kafka-storage`, `kafka-log-dirs`."""
