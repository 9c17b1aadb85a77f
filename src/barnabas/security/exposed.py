"""Files with secrets that the configuration names, and which of them other users of the machine may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from barnabas.config import broker_identity
from barnabas.config import broker_security as options
from barnabas.config.option import ConfigError
from barnabas.security import stores
from barnabas.security.listener_options import ListenerOptions
from barnabas.security.sasl import jaas
from barnabas.security.sasl.gssapi import GSSAPI, MODULE, key_of

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

OAUTHBEARER = "OAUTHBEARER"


def exposed(config: BrokerConfig) -> dict[str, str]:
    """The files with secrets that other users can read: path -> what the file contains."""
    readers_by_path: dict[str, str] = {}
    for path, what in _named(config):
        if stores.readable_by_others(path):
            readers_by_path.setdefault(path, what)
    return readers_by_path


def exposed_line(path: str, what: str) -> str:
    """One line that reports a file that `exposed` found."""
    return f"every user of this machine can read {path}, which holds {what}; chmod 600 it"


def open_log_dirs(config: BrokerConfig) -> Iterator[str]:
    """One line for each log dir that more users can read than log.dirs.permissions says."""
    permissions = config.get(broker_identity.LOG_DIRS_PERMISSIONS)
    wanted = broker_identity.LOG_DIR_MODES[permissions]
    for path in config.log_dirs:
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        except OSError:
            continue  # it is made with the right permissions, or the broker says what is wrong with it
        if mode & 0o077 & ~wanted:
            who = "every user" if mode & 0o007 else "the group"
            yield (
                f"{who} of this machine can look into {path}, which holds records and metadata, and "
                f"log.dirs.permissions={permissions}; chmod {wanted:o} it, or set log.dirs.permissions="
                f"{'everybody' if mode & 0o007 else 'group'} if that is meant"
            )


def _named(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    for listener in config.listeners:
        own, protocol = ListenerOptions(config, listener.name), listener.security_protocol
        keystore = own.get(options.SSL_KEYSTORE_LOCATION)
        if keystore and protocol in ("SSL", "SASL_SSL"):
            yield keystore, "the broker's private key"
        if protocol.startswith("SASL"):
            yield from _of_logins(own)
    for path in config.secret_files:
        yield path, "passwords"
    users = config.get(options.SCRAM_USERS_FILE)
    if users:
        yield users, "what users' passwords are checked against"


def _of_logins(own: ListenerOptions) -> Iterator[tuple[str, str]]:
    file = jaas.file_named()
    if file is not None:
        yield file, "passwords"
    mechanisms = {name.upper() for name in own.get(options.SASL_ENABLED_MECHANISMS)}
    if GSSAPI in mechanisms:
        try:
            key = key_of(jaas.entry_of(own, GSSAPI, MODULE, file) or {})
        except ConfigError:
            key = None  # the broker reports the reason when it starts
        if key is not None:
            yield key[1], "the broker's Kerberos key"
    url = own.get(options.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, OAUTHBEARER)
    if OAUTHBEARER in mechanisms and url and url.startswith("file:"):
        yield unquote(urlsplit(url).path), "the broker's token"
