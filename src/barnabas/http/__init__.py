"""The HTTP server that the registry, the REST proxy and the reporting service share.

* `server.py`: listens, serves until it is stopped, and then answers the requests in progress.
* `accepting.py`: accepts connections, with limits on their number.
* `connection.py`: uvicorn's connection with limits on the size and time of headers.
* `guard.py`: around every request: its id, the access log, limits on body, time and number, users, errors.
* `bodies.py`: request bodies as JSON.
* `errors.py`: the exception with which handlers refuse a request.
"""
