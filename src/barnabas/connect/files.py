"""The options of a connector in a file: Java's properties, or JSON as a request that creates one has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from barnabas.config.option import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.connect.errors import OptionError


def read_config(file: Path) -> dict[str, str]:
    """The options; `-` reads standard input. JSON may have `name` and `config` around them. Raises OptionError."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        if not text.lstrip().startswith("{"):
            return {row.name: row.value.strip() for row in parse_properties(text)}
        document = json.loads(text)
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError, ConfigError) as error:
        raise OptionError(f"{file}: {error}") from None
    config = document.get("config", document)
    if not isinstance(config, dict):
        raise OptionError(f"{file}: config is not an object")
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    return (
        {"name": str(document["name"]), **texts} if config is not document and "name" in document else texts
    )
