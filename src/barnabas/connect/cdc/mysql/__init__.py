"""MySQL and MariaDB: a snapshot, and then the binary log from exactly where the snapshot ends.

`types` reads values (no I/O), `server` asks the server, `snapshot` and `binlog` make records, `source` is the connector. The
log itself is read by the package mysql-replication. Names of columns come from the log (binlog_row_metadata=FULL), so that
no history of schemas has to be kept.
"""
