"""The HTTP server that the registry, the REST proxy, reporting and the pipeline server share.

* `server.py`: listens, serves until it is stopped, and then answers the requests in progress.
* `accepting.py`: accepts connections, with limits on their number.
* `connection.py`: uvicorn's connection with limits on the size and time of headers.
* `guard.py`: around every request: its id, the access log, limits on body, time and number, users, errors.
* `visitors.py`: which requests of browsers are accepted.
* `shares.py`: divides what is limited among the clients' addresses.
* `bodies.py`: request bodies as JSON.
* `errors.py`: the exception with which handlers refuse a request.
"""
