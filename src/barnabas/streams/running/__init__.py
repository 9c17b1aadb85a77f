"""How the nodes of a topology work: PURE. One record at a time, with the state of one task in a mapping of texts.

Results, their order and their timestamps are those of Kafka Streams without its cache.
"""
