"""How this broker logs in to ZooKeeper, from the same options and environment variables as a Kafka broker."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.zookeeper_tls import zookeeper_tls
from barnabas.config import broker_zookeeper as options
from barnabas.config import jaas
from barnabas.config.option import ConfigError
from barnabas.extras import how_to_install

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.coordination.zookeeper_access import Access, SaslLogin

SECTION_PROPERTY: Final = "zookeeper.sasl.clientconfig"
ENABLED_PROPERTY: Final = "zookeeper.sasl.client"
SERVICE_PROPERTY: Final = "zookeeper.sasl.client.username"
DEFAULT_SECTION: Final = "Client"


def access_from(config: BrokerConfig) -> Access:
    """How to log in. Raises OSError, with a one-line message, when that is impossible."""
    from barnabas.coordination.zookeeper_access import Access

    try:
        sasl = _sasl_login()
        tls = zookeeper_tls(config)
    except jaas.JaasError as error:
        raise OSError(f"the login to ZooKeeper cannot be used: {error}") from None
    except ConfigError as error:
        raise OSError(str(error)) from None
    digest = config.get(options.ZOOKEEPER_DIGEST_LOGIN)
    protect = config.get(options.ZOOKEEPER_SET_ACL)
    has_certificate = tls is not None and config.get(options.ZOOKEEPER_SSL_KEYSTORE_LOCATION) is not None
    if protect and sasl is None and digest is None and not has_certificate:
        raise OSError(
            "zookeeper.set.acl is true, and the broker has no login in ZooKeeper that its nodes could belong to; set "
            "zookeeper.digest.login=USER:PASSWORD or zookeeper.ssl.keystore.location, or name a JAAS file with a section "
            "Client in KAFKA_OPTS (-Djava.security.auth.login.config=FILE)"
        )
    return Access(digest, sasl, tls, protect)


def _sasl_login() -> SaslLogin | None:
    """The login in the JAAS file named in KAFKA_OPTS; None without the file or the section. Raises JaasError, OSError."""
    from barnabas.coordination.zookeeper_access import SaslLogin

    properties = jaas.java_properties()
    path = properties.get(jaas.FILE_PROPERTY)
    if path is None or properties.get(ENABLED_PROPERTY, "true").lower() == "false":
        return None
    section = properties.get(SECTION_PROPERTY, DEFAULT_SECTION)
    logins = jaas.read_section(path, section)
    if not logins:
        return None
    if find_spec("puresasl") is None:
        raise OSError(
            f"{path} has a section {section}, and SASL for ZooKeeper is not installed; install it with "
            f"{how_to_install('cluster')}"
        )
    service = properties.get(SERVICE_PROPERTY, "zookeeper")
    module, login_options = logins[0]
    if module in ("DigestLoginModule", "PlainLoginModule"):
        missing = [name for name in ("username", "password") if not login_options.get(name)]
        if missing:
            raise jaas.JaasError(
                f"{path}, section {section}: {' and '.join(missing)} of {module} are missing"
            )
        return SaslLogin("DIGEST-MD5", service, login_options["username"], login_options["password"])
    if module == "Krb5LoginModule":
        return SaslLogin("GSSAPI", service, principal=login_options.get("principal"))
    raise jaas.JaasError(
        f"{path}, section {section}: {module} is not known; ZooKeeper takes DigestLoginModule and Krb5LoginModule"
    )
