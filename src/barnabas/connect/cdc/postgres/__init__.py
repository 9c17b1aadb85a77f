"""PostgreSQL: a snapshot, and then the stream of logical replication from exactly where the snapshot ends.

`pgoutput`, `texts` and `types` read what the server writes (no I/O); `replication` and `catalog` talk to it; `snapshot` and
`streaming` make records; `source` is the connector.
"""
