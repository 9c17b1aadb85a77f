"""Reporting over HTTP: access points that lead to topics, web hooks, CloudEvents.

* `signatures.py`: TC3-HMAC-SHA256 and the signatures of web hooks. Pure.
* `bodies.py`: the records that a plain POST holds: JSON lines, CloudEvents. Pure.
* `points.py`: the access points, kept in a compacted topic.
* `api.py`, `main.py`: the service.
"""
