"""Reporting over HTTP: access points that lead to topics, web hooks, CloudEvents.

* `signatures.py`: TC3-HMAC-SHA256 and the signatures of web hooks. Pure.
* `bodies.py`: the records in a plain POST: JSON lines, CloudEvents. Pure.
* `points.py`: the access points, stored in a compacted topic.
* `api.py`, `main.py`: the service.
"""
