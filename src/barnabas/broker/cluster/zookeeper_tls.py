"""TLS to ZooKeeper, from zookeeper.ssl.*."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from barnabas.config import broker_security, broker_zookeeper
from barnabas.config.option import ConfigError, Option, refused
from barnabas.security import stores
from barnabas.security.listener_options import ListenerOptions
from barnabas.security.tls import VERSIONS, why_unusable

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

T = TypeVar("T")

OPTIONS: Final[dict[str, Option[Any]]] = {
    broker_security.SSL_KEYSTORE_LOCATION.name: broker_zookeeper.ZOOKEEPER_SSL_KEYSTORE_LOCATION,
    broker_security.SSL_KEYSTORE_PASSWORD.name: broker_zookeeper.ZOOKEEPER_SSL_KEYSTORE_PASSWORD,
    broker_security.SSL_TRUSTSTORE_LOCATION.name: broker_zookeeper.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION,
    broker_security.SSL_TRUSTSTORE_PASSWORD.name: broker_zookeeper.ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD,
}
"""Options of listeners -> ZooKeeper's options with the same meaning."""


class ZooKeeperStores(ListenerOptions):
    """The key and trust store options zookeeper.ssl.*, presented under the names of the listeners' options."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config, "ZooKeeper")

    def get(self, option: Option[T], mechanism: str = "") -> T:
        """The value of the corresponding ZooKeeper option; None if there is none."""
        mine = OPTIONS.get(option.name)
        return cast(T, None if mine is None else self._config.get(mine))

    def name_of(self, option: Option[Any], mechanism: str = "") -> str:
        """The name of the ZooKeeper option, for messages."""
        mine = OPTIONS.get(option.name)
        return option.name if mine is None else mine.name


def zookeeper_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    """The TLS context for ZooKeeper; None when zookeeper.ssl.client.enable is false. Raises ConfigError."""
    if not config.get(broker_zookeeper.ZOOKEEPER_SSL_CLIENT_ENABLE):
        return None
    files = ZooKeeperStores(config)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(
        config.get(broker_zookeeper.ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM)
    )
    option = broker_zookeeper.ZOOKEEPER_SSL_ENABLED_PROTOCOLS
    wanted: tuple[str, ...] = config[option.name]
    versions = [VERSIONS[name] for name in wanted if name in VERSIONS]
    if not versions:
        raise refused(option.name, ",".join(wanted), f"must name some of {', '.join(VERSIONS)}")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    trusted = stores.trusted(files)
    if trusted is None:
        context.load_default_certs()
    else:
        with stores.as_file(trusted) as path:
            _loaded(
                files.name_of(broker_security.SSL_TRUSTSTORE_LOCATION),
                lambda: context.load_verify_locations(path),
            )
        if stores.CRL_BEGIN in trusted:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if config.get(broker_zookeeper.ZOOKEEPER_SSL_KEYSTORE_LOCATION) is not None:
        key = stores.key_material(files)
        with stores.as_file(key.pem) as path:
            try:
                context.load_cert_chain(path, password=lambda: key.password or "")
            except ssl.SSLError as error:
                name = files.name_of(broker_security.SSL_KEYSTORE_LOCATION)
                why = why_unusable(error, "zookeeper.ssl.keystore.password")
                raise ConfigError(f"{name}: {why}") from None
    return context


def _loaded(option: str, load: Any) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise ConfigError(
            f"{option}: the contents of the file cannot be used ({error.reason or error})"
        ) from None
