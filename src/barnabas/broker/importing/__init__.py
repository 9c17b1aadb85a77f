"""Data directories of Apache Kafka become one of Barnabas: logs are copied, metadata are made znodes.

`kraft` reads the metadata of brokers in KRaft mode, `zookeeper` those of a ZooKeeper that still runs, `importer` puts
both together with the partitions' folders. Nothing in the directories of Kafka is changed.
"""
