"""`kafka-reassign-partitions`: plans, throttles, moves between brokers and between log directories."""
