"""MQTT: messages as records and records as messages, under Lenses' and Confluent's class names and options.

`kcql` reads Lenses' little language (no I/O), `link` holds a connection; `source` and `sink` are the connectors.
"""
