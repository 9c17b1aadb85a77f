"""Tables of databases to topics by queries, and topics to tables: the options of Confluent's JDBC connectors.

`urls` opens databases, `columns` says what their types are in Connect, `source` and `sink` are the connectors.
"""
