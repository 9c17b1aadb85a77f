"""Values stored elsewhere: `${NAME:PATH:KEY}` in server.properties, resolved by Kafka's config providers.

    config.providers=secrets
    config.providers.secrets.class=org.apache.kafka.common.config.provider.FileConfigProvider
    ssl.keystore.password=${secrets:/etc/kafka/secrets.properties:keystore}

A file provider reads a key from a properties file, a directory provider a whole file in a folder, an environment provider
a variable. `file`, `dir` and `env` need not be declared. A value is looked up once, when the broker starts.
Source: KIP-297, KIP-632, KIP-887, KIP-993.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.config.broker_identity import CONFIG_PROVIDERS
from barnabas.config.option import ConfigError, refused
from barnabas.config.properties import parse_properties

PREFIX: Final = CONFIG_PROVIDERS.name
FILE, DIRECTORY, ENVIRONMENT = "FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider"
CLASSES: Final = (FILE, DIRECTORY, ENVIRONMENT)
UNDECLARED: Final = {"file": FILE, "dir": DIRECTORY, "env": ENVIRONMENT}
REFERENCE: Final = re.compile(r"\$\{([^{}:]+):(?:([^{}:]*):)?([^{}:]*)\}")
FILE_BYTES_MAX: Final = 1 << 20


def is_parameter(name: str) -> bool:
    """Whether an option configures a provider."""
    return name.startswith(PREFIX + ".")


class Providers:
    """The providers that a configuration declares. texts: the configuration, by option name. declared_only: those that need
    no declaration are not there either. Raises ConfigError."""

    def __init__(self, texts: Mapping[str, str], *, declared_only: bool = False) -> None:
        self._kinds = {} if declared_only else dict(UNDECLARED)
        self.files: dict[str, None] = {}
        """Those that values were looked up in."""
        self._parameters: dict[str, dict[str, str]] = {}
        for name in filter(None, (part.strip() for part in texts.get(PREFIX, "").split(","))):
            option = f"{PREFIX}.{name}.class"
            kind = texts.get(option, "").strip().rpartition(".")[2]
            if kind not in CLASSES:
                raise refused(option, texts.get(option, ""), f"must be one of {', '.join(CLASSES)}")
            self._kinds[name] = kind
            begin = f"{PREFIX}.{name}.param."
            self._parameters[name] = {
                key[len(begin) :]: text.strip() for key, text in texts.items() if key.startswith(begin)
            }

    def expand(self, text: str) -> str:
        """A value with its references replaced; names of unknown providers are left as they are. Raises ConfigError."""
        return REFERENCE.sub(self._value, text) if "${" in text else text

    def _value(self, match: re.Match[str]) -> str:
        name, path, key = match.group(1), match.group(2) or "", match.group(3)
        kind = self._kinds.get(name)
        if kind is None:
            return match.group(0)
        try:
            if kind == ENVIRONMENT:
                return self._variable(name, key)
            self._check_path(name, path)
            if kind == DIRECTORY:
                if key in ("", ".", "..") or "/" in key:
                    raise ConfigError(f"{key!r} is not the name of a file in a folder")
                self._check_path(name, f"{path}/{key}")
                return self._noted(Path(path, key), _read(Path(path, key)))
            return self._noted(Path(path), _key_of(Path(path), key))
        except ConfigError as error:
            raise ConfigError(f"the value {match.group(0)} cannot be looked up: {error}") from None

    def _noted(self, path: Path, value: str) -> str:
        self.files[str(path)] = None
        return value

    def _variable(self, name: str, key: str) -> str:
        pattern = self._parameters.get(name, {}).get("allowlist.pattern", "")
        if pattern and re.fullmatch(pattern, key) is None:
            raise ConfigError(f"{PREFIX}.{name}.param.allowlist.pattern={pattern} does not allow {key}")
        if key not in os.environ:
            raise ConfigError(f"environment variable {key} is not set")
        return os.environ[key]

    def _check_path(self, name: str, path: str) -> None:
        if not path:
            raise ConfigError("it names no file or folder; write ${NAME:PATH:KEY}")
        allowed = self._parameters.get(name, {}).get("allowed.paths", "")
        if not allowed:
            return
        real = os.path.realpath(path)
        for folder in filter(None, (part.strip() for part in allowed.split(","))):
            root = os.path.realpath(folder)
            if os.path.commonpath((root, real)) == root:
                return
        raise ConfigError(f"{PREFIX}.{name}.param.allowed.paths={allowed} does not allow {path}")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} has more than {FILE_BYTES_MAX} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None


def _key_of(path: Path, key: str) -> str:
    try:
        texts = {name: text for name, text, _ in parse_properties(_read(path))}
    except ConfigError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    if key not in texts:
        raise ConfigError(f"{path} has no key {key!r}")
    return texts[key]
