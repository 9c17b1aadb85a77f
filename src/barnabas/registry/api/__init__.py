"""Confluent's HTTP API of a registry. Paths of schemas, subjects and settings also exist below `/contexts/{context}`.

An error is {"error_code": number, "message": "one sentence"}.
"""

from barnabas.registry.api.call import error_shape
from barnabas.registry.api.routes import routes

__all__ = ["error_shape", "routes"]
