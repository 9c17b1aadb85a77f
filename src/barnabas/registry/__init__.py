"""A schema registry that keeps its data in the topic `_schemas`, in Confluent's format and with Confluent's HTTP API.

Pure: `subjects`, `model`, `records`, `state`, `requests`, `decisions`, `formats/` (Avro, JSON Schema, Protobuf: reading,
writing, comparing). Around them: `store` (the topic), `election` (one writer at a time), `service` (reads here, writes
at the writer), `api` (HTTP), `main` (the process).
"""
