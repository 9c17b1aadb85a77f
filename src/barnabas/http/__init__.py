"""The HTTP server that the registry, the REST proxy and the reporting service share.

* `server.py`: listens, serves until told to stop, and answers what it has taken before it ends.
* `connection.py`: uvicorn's connection with limits on headers, time and number.
* `guard.py`: around every request: its id, the access log, limits on body, time and number, users, errors.
* `bodies.py`: request bodies as JSON.
* `errors.py`: what a handler raises, and how a service writes it down.
"""
