"""A cluster on one machine: ZooKeeper and brokers as processes over one folder."""
