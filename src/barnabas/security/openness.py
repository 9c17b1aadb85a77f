"""What a broker's configuration leaves open: `barnabas security check`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_security as options
from barnabas.config.option import ConfigError
from barnabas.security import purposes, stores
from barnabas.security.exposed import exposed, exposed_line, open_log_dirs
from barnabas.security.listener_options import ListenerOptions
from barnabas.security.sasl.oauthbearer import UNSECURED

if TYPE_CHECKING:
    from barnabas.config.listeners import Listener
    from barnabas.config.loader import BrokerConfig

EXPIRY_DAYS: Final = 30


def findings(config: BrokerConfig) -> Iterator[str]:
    """One sentence for each weakness: those of the listeners first."""
    for listener in config.listeners:
        yield from _of_listener(config, listener)
    if not config.get(options.AUTHORIZER_CLASS_NAME):
        yield "no authorizer.class.name is set: whoever is connected may read, write and delete everything"
    elif config.get(options.ALLOW_EVERYONE_IF_NO_ACL_FOUND):
        yield "allow.everyone.if.no.acl.found=true: everybody may use resources that have no ACL"
    for path, what in exposed(config).items():
        yield exposed_line(path, what)
    yield from open_log_dirs(config)
    if "User:ANONYMOUS" in config.get(options.SUPER_USERS):
        yield "super.users names User:ANONYMOUS: whoever connects without a login may do everything"


def _of_listener(config: BrokerConfig, listener: Listener) -> Iterator[str]:
    own = ListenerOptions(config, listener.name)
    protocol, is_public = listener.security_protocol, not is_loopback(listener.host)
    if protocol == "PLAINTEXT" and is_public:
        yield f"{listener} can be reached from other machines, without encryption and without a login"
    if protocol == "SASL_PLAINTEXT" and is_public:
        yield f"{listener} can be reached from other machines, unencrypted: records and tokens can be read in transit"
    if protocol == "SSL" and own.get(options.SSL_CLIENT_AUTH) != "required":
        yield f"{listener} accepts clients without a certificate; set ssl.client.auth=required, or use SASL_SSL"
    if protocol.startswith("SASL"):
        mechanisms = own.get(options.SASL_ENABLED_MECHANISMS)
        if "PLAIN" in mechanisms and protocol == "SASL_PLAINTEXT":
            yield f"{listener} accepts plain-text passwords (PLAIN) over unencrypted connections"
        handler = own.get(options.SASL_SERVER_CALLBACK_HANDLER_CLASS, "OAUTHBEARER")
        if "OAUTHBEARER" in mechanisms and handler == UNSECURED:
            yield f"{listener} accepts tokens without a signature: everybody can log in as anybody"
    if protocol in ("SSL", "SASL_SSL"):
        yield from _of_certificates(own, listener, listener == config.inter_broker_listener)


def _of_certificates(own: ListenerOptions, listener: Listener, is_between: bool) -> Iterator[str]:
    """is_between: whether brokers connect to each other through this listener."""
    try:
        pem = stores.key_material(own).pem
    except ConfigError as error:
        yield f"{listener}: {error}"
        return
    from cryptography import x509

    missing = purposes.lacks(pem)
    if purposes.NO_SERVER_AUTH in missing:
        yield f"clients refuse the certificate of {listener}: {purposes.NO_SERVER_AUTH}"
    if purposes.NO_CLIENT_AUTH in missing and is_between and own.get(options.SSL_CLIENT_AUTH) != "none":
        yield (
            f"other brokers refuse the certificate of {listener}, which asks them for one (ssl.client.auth): "
            f"{purposes.NO_CLIENT_AUTH}"
        )
    certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    if left < datetime.timedelta(0):
        yield f"the certificate of {listener} has expired"
    elif left < datetime.timedelta(days=EXPIRY_DAYS):
        yield f"the certificate of {listener} expires in {left.days} days"


def is_loopback(host: str) -> bool:
    """Whether a listener on this address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
