"""Compacted topics as tables: each instance reads the whole topic, follows it, and waits until it has read its own writes.

    table = TopicTable(options, CompactedTopic("_points", "access points"), PointCodec())
    await table.start()
    await table.put("a", point)     # returns when this instance has read it back
    table.snapshot()

What needs more than the last value of each key gives a `Replayed` of its own to a `TopicReplica`, as the registry does.
"""
