"""Records: reading them from partitions, decoding them, and looking for those that fit a filter.

* `fetching.py`: batches of a partition as columns. `decoding.py`: bytes as people read them.
* `filters.py`: expressions over a record (PURE). `scanning.py`: going through partitions within bounds of memory and time.
"""
