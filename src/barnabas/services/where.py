"""How a further cluster is reached: HOST:PORT,... or a file with a client's properties."""

from __future__ import annotations

from pathlib import Path

from barnabas.terminal.errors import UsageError


def properties_of(where: str, option: str) -> dict[str, str]:
    """A client's properties: of a file, otherwise just where the brokers are. Raises UsageError that names the option."""
    path = Path(where).expanduser()
    if not path.is_file():
        return {"bootstrap.servers": where}
    from barnabas.config.option import ConfigError
    from barnabas.config.properties import parse_properties

    try:
        return {name: text for name, text, _ in parse_properties(path.read_text())}
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise UsageError(
            f"{option}: cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
