"""Prints the code that encodes and decodes a message: `python -m barnabas.wire FetchRequest 12`."""

from __future__ import annotations

import sys

from barnabas.wire.compile_decode import decoder_source
from barnabas.wire.compile_encode import encoder_source
from barnabas.wire.messages import message_class


def main(arguments: list[str]) -> int:
    """arguments: a message's name and a version."""
    try:
        name, version = arguments[0], int(arguments[1])
        message = message_class(name)
    except (IndexError, ValueError, KeyError, AttributeError):
        print("usage: python -m barnabas.wire NAME VERSION, for example FetchRequest 12", file=sys.stderr)
        return 2
    if version not in message.VERSIONS:
        low, high = message.VERSIONS[0], message.VERSIONS[-1]
        print(f"{name} has versions {low} to {high}, not {version}", file=sys.stderr)
        return 2
    print(decoder_source(message, version)[0])
    print(encoder_source(message, version)[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
