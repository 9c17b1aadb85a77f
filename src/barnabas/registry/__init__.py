"""A schema registry with Confluent's HTTP API, which stores its data in the topic `_schemas` in Confluent's format.

Pure modules: `subjects`, `model`, `records`, `state`, `requests`, `decisions`, `formats/` (Avro, JSON Schema, Protobuf:
parsing, printing, comparing). The others: `store` (the topic), `election` (one writer at a time), `service` (answers
reads and forwards changes to the writer), `api` (HTTP), `main` (the process).
"""
