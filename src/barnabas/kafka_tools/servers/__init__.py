"""Scripts that start and stop servers: brokers, ZooKeeper, Connect, the schema registry; and ZooKeeper's shell."""
