"""What connections tell of themselves in the scope's extensions."""

from __future__ import annotations

from typing import Final

ABORT: Final = "barnabas.abort"
"""Key in the scope's extensions: a function that closes the connection at once and discards unwritten data. On HTTP/2 it
ends the one request, unless the peer does not read."""
KEEP: Final = "barnabas.keep"
"""Key in the scope's extensions: a function by which the connection keeps its place, once its request is served."""
BODY: Final = "barnabas.body"
"""Key in the scope's extensions: whether a body follows the headers. HTTP/1.1 tells by the headers, and has no such key."""
