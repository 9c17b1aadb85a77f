"""A folder with everything that a secured broker and its clients need: `barnabas security init DIR` writes it.

    ca.pem, ca-key.pem        the authority; its key signs further certificates, and must not be kept on a server
    broker.pem                the broker's key and certificate
    users.properties          SCRAM credentials, from which passwords cannot be recovered
    broker.properties         the password with which brokers log in to each other
    clients/USER/...          files for that user's programs, with the password

Files with keys or passwords can be read by their owner alone.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.config.option import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.security.sasl.scram import (
    HASHES,
    ITERATIONS_MIN,
    SALT_BYTES,
    encode_credential,
    new_credential,
)

ADMIN: Final = "admin"
BROKER_USER: Final = "broker"
"""The user as which brokers log in to each other."""
CA, CA_KEY, BROKER, USERS, CLIENTS = "ca.pem", "ca-key.pem", "broker.pem", "users.properties", "clients"
FIRST_USERS: Final = "scram-users.properties"
"""A file in a log dir, in which `kafka-storage format --add-scram` stores credentials for the broker's first start."""
BROKER_LOGIN: Final = "broker.properties"
MECHANISM: Final = "SCRAM-SHA-512"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
DEFAULT_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
DEFAULT_PORT: Final = 9092
PASSWORD_BYTES: Final = 24
FORBIDDEN: Final = frozenset("/\\\0\r\n:=\"' ")


class FolderError(ValueError):
    """The folder cannot be created or used; the message is one line that says why and what to do."""


def create(folder: Path, hosts: Sequence[str], users: Sequence[str]) -> list[str]:
    """Create the folder, or add users to an existing one; returns the new users. Raises FolderError, OSError.

    An existing authority, users and client files are kept. The broker's certificate is always issued again, for `hosts`
    and DEFAULT_HOSTS only.
    """
    from barnabas.security.authority import Authority, write_private

    for user in users:
        if not user or user in (".", "..") or FORBIDDEN & set(user):
            raise FolderError(
                f"--user {user!r}: a name cannot have spaces, quotes, slashes, colons or equals signs"
            )
        if user == BROKER_USER:
            raise FolderError(f"--user {user}: this is the brokers' own user; choose another name")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / CA).exists():
        try:
            authority = Authority.load((folder / CA_KEY).read_bytes(), (folder / CA).read_bytes())
        except (OSError, ValueError) as error:
            raise FolderError(f"{folder}: its existing authority cannot be used: {error}") from None
    else:
        authority = Authority.new("Barnabas CA")
        write_private(folder / CA_KEY, authority.key_pem)
        (folder / CA).write_bytes(authority.pem)
    all_hosts = list(dict.fromkeys((*hosts, *DEFAULT_HOSTS)))
    key, certificate = authority.issue(all_hosts[0], all_hosts)
    write_private(folder / BROKER, key + certificate)
    known = read_users(folder / USERS) if (folder / USERS).exists() else {}
    fresh = [user for user in dict.fromkeys((ADMIN, *users)) if user not in known]
    if BROKER_USER not in known:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        known[BROKER_USER] = _credentials(password)
        write_private(folder / BROKER_LOGIN, f"password={password}\n".encode())
    for user in fresh:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        known[user] = _credentials(password)
        _write_client(folder, user, password, f"{all_hosts[0]}:{DEFAULT_PORT}")
    write_private(folder / USERS, users_text(known).encode())
    return fresh


def _credentials(password: str) -> dict[str, str]:
    return {
        name: encode_credential(new_credential(name, password, os.urandom(SALT_BYTES), ITERATIONS_MIN))
        for name in HASHES
    }


def options(folder: Path) -> dict[str, str]:
    """The broker options that refer to a folder's files, without the listener's. Raises FolderError."""
    for name in (CA, BROKER, USERS):
        if not (folder / name).is_file():
            raise FolderError(
                f"{folder} has no {name}; make the folder with: barnabas security init {folder}"
            )
    return {
        "ssl.keystore.location": str(folder / BROKER),
        "ssl.keystore.type": "PEM",
        "sasl.enabled.mechanisms": ",".join(HASHES),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{BROKER_USER}",
        "scram.users.file": str(folder / USERS),
    }


def between_options(folder: Path) -> dict[str, str]:
    """The broker options with which brokers of the same folder log in to each other.

    Empty for a folder that an older version made, or whose path contains one of `:{}`. They refer to the file with the
    password, because everybody who lists processes can see options.
    """
    file = folder / BROKER_LOGIN
    if not file.is_file() or set(":{}") & set(str(file)):
        return {}
    return {
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{BROKER_USER}" password="${{file:{file}:password}}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / CA),
    }


def read_users(path: Path) -> dict[str, dict[str, str]]:
    """SCRAM credentials by user and mechanism: lines of `USER.MECHANISM=salt=...`. Raises FolderError."""
    credentials: dict[str, dict[str, str]] = {}
    try:
        for name, text, line in parse_properties(path.read_text()):
            user, dot, mechanism = name.rpartition(".")
            if not dot or mechanism not in HASHES:
                raise FolderError(
                    f"{path}:{line}: {name!r} is not USER.MECHANISM with one of {', '.join(HASHES)}"
                )
            credentials.setdefault(user, {})[mechanism] = text
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise FolderError(f"cannot read {path}: {error}") from None
    return credentials


def users_text(users: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a file with these credentials, in the format of `read_users`."""
    lines = [f"{user}.{name}={text}" for user, texts in sorted(users.items()) for name, text in texts.items()]
    return "\n".join(
        ("# SCRAM credentials; when a broker starts, it adds those that its cluster lacks.", *lines, "")
    )


def _write_client(folder: Path, user: str, password: str, address: str) -> None:
    from barnabas.security.authority import write_private

    home = folder / CLIENTS / user
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = str(folder / CA)
    java = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
    }
    librdkafka = {
        "bootstrap.servers": address,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": ca,
    }
    python = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        "ssl_cafile": ca,
    }
    spark = {f"kafka.{name}": value for name, value in java.items()}
    files = {
        "java.properties": _properties(java.items()),
        "librdkafka.properties": "".join(f"{name}={value}\n" for name, value in librdkafka.items()),
        "kafka-python.json": json.dumps(python, indent=2) + "\n",
        "pyspark.json": json.dumps(spark, indent=2) + "\n",
        "curl.conf": f'cacert = "{ca}"\nuser = "{user}:{password}"\n',
    }
    for name, text in files.items():
        write_private(home / name, text.encode())


def _properties(pairs: Iterable[tuple[str, str]]) -> str:
    """Java's format, in which a backslash begins an escape."""
    return "".join(f"{name}={value}\n" for name, value in ((n, v.replace("\\", "\\\\")) for n, v in pairs))
