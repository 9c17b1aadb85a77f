"""JAAS configuration in the syntax that Kafka documents: in `sasl.jaas.config`, or in sections of a file.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_alice="her secret";

A file has such entries in named sections: `KafkaServer { ... };`, or `sasl_ssl.KafkaServer` for one listener only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.config import jaas
from barnabas.config.broker_security import SASL_JAAS_CONFIG
from barnabas.config.option import ConfigError

if TYPE_CHECKING:
    from barnabas.security.listener_options import ListenerOptions

SECTION: Final = "KafkaServer"
USER_PREFIX: Final = "user_"
Entry = Mapping[str, str]
"""A login module's options by name; the empty name has the module's class, without its package."""


def parse_entry(text: str) -> Entry:
    """The one entry of `sasl.jaas.config`. Raises ConfigError without quoting the text, which contains secrets."""
    try:
        return _entry(jaas.parse_login(text))
    except jaas.JaasError as error:
        form = 'a JAAS configuration must be one `MODULE required NAME="VALUE" ...;`'
        raise ConfigError(f"{form}: {error}") from None


def file_named() -> str | None:
    """The JAAS file of this process, named as for Kafka: KAFKA_OPTS=-Djava.security.auth.login.config=FILE."""
    return property_named(jaas.FILE_PROPERTY)


def property_named(property_name: str) -> str | None:
    """The value that KAFKA_OPTS=-DNAME=VALUE gives to a Java property; None if it is not set there. Raises ConfigError."""
    try:
        return jaas.java_properties().get(property_name) or None
    except jaas.JaasError as error:
        raise ConfigError(str(error)) from None


def section_entries(path: str, listener: str) -> list[Entry]:
    """The entries for a listener in a JAAS file, from its own section or KafkaServer's. Raises ConfigError."""
    try:
        sections = jaas.read_file(path)
    except jaas.JaasError as error:
        raise ConfigError(f"JAAS: {error}") from None
    logins = sections.get(f"{listener.lower()}.{SECTION}") or sections.get(SECTION) or ()
    return [_entry(login) for login in logins]


def entry_of(options: ListenerOptions, mechanism: str, module: str, file: str | None) -> Entry | None:
    """A listener's entry for a mechanism: from `sasl.jaas.config`, else from the JAAS file; None if neither has one.

    module: the end of the login module's class name; entries of other modules are ignored. Raises ConfigError.
    """
    text = options.get(SASL_JAAS_CONFIG, mechanism)
    if text is not None:
        try:
            entry = parse_entry(text)
        except ConfigError as error:
            raise ConfigError(f"{options.name_of(SASL_JAAS_CONFIG, mechanism)}: {error}") from None
        return entry if entry[""].endswith(module) else None
    if file is not None:
        for entry in section_entries(file, options.listener):
            if entry[""].endswith(module):
                return entry
    return None


def users_of(entry: Entry) -> dict[str, str]:
    """user -> password, from an entry's options user_NAME="password"."""
    return {name[len(USER_PREFIX) :]: value for name, value in entry.items() if name.startswith(USER_PREFIX)}


def _entry(login: jaas.Login) -> Entry:
    return {"": login.module, **login.options}
