"""The REST proxy and reporting over HTTP: records and administration for programs that speak HTTP and not Kafka's protocol.

* `v2.py`, `v2_consumers.py`: Confluent's API v2: topics, partitions, producing, consumer instances.
* `v3_*.py`: Confluent's API v3: clusters, brokers, topics, configurations, partitions, groups, ACLs, records.
* `kafka.py`: the cluster; `barnabas.admin` for all but records.
* `producing.py`, `consuming.py`: records through librdkafka, without blocking the loop.
* `formats.py`, `schemas.py`, `dead_letters.py`: embedded formats, with the schemas of a registry.
* `reporting/`: access points, web hooks, CloudEvents.
"""
