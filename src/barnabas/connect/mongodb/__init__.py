"""MongoDB: change streams as records and records as documents, under MongoDB's own class names and options.

`texts` writes documents (no I/O), `reader` follows change streams, `source`, `sink` and `writes` are the connectors.
"""
