"""Broker options: authorization, SASL, TLS, delegation tokens. SASL and TLS may be set per listener."""

from __future__ import annotations

from typing import Final

from barnabas.config.option import Mark, Mode, OptionTable

SECURITY: Final = OptionTable("Security")

WORKS: Final = Mark.WORKS
IGNORED: Final = Mark.IGNORED
PER_BROKER: Final = Mode.PER_BROKER
_JAVA: Final = "Java class; cannot run here."

AUTHORIZER_CLASS_NAME: Final = SECURITY.string(
    "authorizer.class.name", "", "Any authorizer's name switches access control on.", mark=WORKS
)
SUPER_USERS: Final = SECURITY.string(
    "super.users", "", "Principals that may do everything, as User:a;User:b.", mark=WORKS
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = SECURITY.boolean(
    "allow.everyone.if.no.acl.found", False, "Let everybody use what no ACL names.", mark=WORKS
)
AUDIT_TOPIC: Final = SECURITY.string(
    "audit.topic",
    "",
    "Topic that gets a JSON record for each denial of the authorizer; made with the broker's defaults when it is not there. "
    "Empty: none. Kafka has no such option.",
    mark=WORKS,
)
AUDIT_TOPIC_GRANTS: Final = SECURITY.boolean(
    "audit.topic.grants",
    False,
    "Whether that topic also gets what was allowed, once for each connection, operation and resource.",
    mark=WORKS,
)
SECURITY.class_name(
    "principal.builder.class",
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    f"How a principal is made of a connection. {_JAVA}",
    mode=PER_BROKER,
    mark=IGNORED,
)
SASL_ENABLED_MECHANISMS: Final = SECURITY.strings(
    "sasl.enabled.mechanisms",
    ("GSSAPI",),
    "SASL mechanisms that clients may use.",
    mode=PER_BROKER,
    mark=WORKS,
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL: Final = SECURITY.string(
    "sasl.mechanism.inter.broker.protocol",
    "GSSAPI",
    "SASL mechanism between brokers: PLAIN, one of SCRAM's, OAUTHBEARER or GSSAPI.",
    mode=PER_BROKER,
    mark=WORKS,
)
SECURITY.string(
    "sasl.mechanism.controller.protocol",
    "GSSAPI",
    "SASL mechanism between brokers and KRaft controllers.",
    mark=IGNORED,
)
SASL_JAAS_CONFIG: Final = SECURITY.password(
    "sasl.jaas.config",
    "Users and secrets of one listener and mechanism, in JAAS syntax.",
    mode=PER_BROKER,
    mark=WORKS,
)
CONNECTIONS_MAX_REAUTH_MS: Final = SECURITY.long(
    "connections.max.reauth.ms",
    0,
    "Age of a login at which the client must log in again; 0 means never.",
    mark=WORKS,
)
SASL_SERVER_MAX_RECEIVE_SIZE: Final = SECURITY.integer(
    "sasl.server.max.receive.size",
    524_288,
    "Largest message before a client has logged in.",
    lo=0,
    mark=WORKS,
)
for _name in (
    "sasl.client.callback.handler.class",
    "sasl.login.class",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "ssl.engine.factory.class",
):
    SECURITY.class_name(_name, None, _JAVA, mark=IGNORED)
SCRAM_USERS_FILE: Final = SECURITY.string_or_null(
    "scram.users.file",
    "File of USER.MECHANISM=CREDENTIAL lines, as `barnabas security init` writes it; users whom the cluster lacks are added "
    "when the broker starts. Kafka has no such option.",
    mark=WORKS,
)
SASL_SERVER_CALLBACK_HANDLER_CLASS: Final = SECURITY.class_name(
    "sasl.server.callback.handler.class",
    None,
    "For PLAIN a Python function MODULE:FUNCTION that decides on user and password; for OAUTHBEARER Kafka's validator of "
    "unsecured tokens, by its Java name. Set it as listener.name.X.MECHANISM.sasl.server.callback.handler.class.",
    mark=WORKS,
)
SASL_KERBEROS_SERVICE_NAME: Final = SECURITY.string_or_null(
    "sasl.kerberos.service.name",
    "First part of the brokers' Kerberos principals, usually kafka; checked against the broker's own.",
    mode=PER_BROKER,
    mark=WORKS,
)
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES: Final = SECURITY.strings(
    "sasl.kerberos.principal.to.local.rules",
    ("DEFAULT",),
    "Rules that make user names of Kerberos principals; DEFAULT takes the first part of those of the broker's realm.",
    mode=PER_BROKER,
    mark=WORKS,
)
SECURITY.string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "Path of kinit.", mode=PER_BROKER)
SECURITY.double(
    "sasl.kerberos.ticket.renew.window.factor",
    0.8,
    "Share of a ticket's life after which it is renewed.",
    mode=PER_BROKER,
)
SECURITY.double("sasl.kerberos.ticket.renew.jitter", 0.05, "Random part of that time.", mode=PER_BROKER)
SECURITY.long(
    "sasl.kerberos.min.time.before.relogin",
    60_000,
    "Least time between two logins with Kerberos.",
    mode=PER_BROKER,
)
SECURITY.double(
    "sasl.login.refresh.window.factor",
    0.8,
    "Share of a token's life after which it is renewed.",
    lo=0.5,
    hi=1.0,
    mode=PER_BROKER,
)
SECURITY.double(
    "sasl.login.refresh.window.jitter", 0.05, "Random part of that time.", lo=0.0, hi=0.25, mode=PER_BROKER
)
SECURITY.short(
    "sasl.login.refresh.min.period.seconds",
    60,
    "Least time between two renewals of a token.",
    lo=0,
    hi=900,
    mode=PER_BROKER,
)
SECURITY.short(
    "sasl.login.refresh.buffer.seconds",
    300,
    "Time before expiry that is kept for renewing a token.",
    lo=0,
    hi=3600,
    mode=PER_BROKER,
)
SECURITY.integer_or_null("sasl.login.connect.timeout.ms", "Time-out of connecting to a token service.")
SECURITY.integer_or_null("sasl.login.read.timeout.ms", "Time-out of reading from a token service.")
SECURITY.long("sasl.login.retry.backoff.ms", 100, "First wait between attempts at a token service.")
SECURITY.long("sasl.login.retry.backoff.max.ms", 10_000, "Longest wait between attempts at a token service.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Final = SECURITY.string_or_null(
    "sasl.oauthbearer.jwks.endpoint.url",
    "Where the keys that sign tokens are found; https or file.",
    mark=WORKS,
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Final = SECURITY.strings_or_null(
    "sasl.oauthbearer.expected.audience", "Audiences of which a token must name one.", mark=WORKS
)
SASL_OAUTHBEARER_EXPECTED_ISSUER: Final = SECURITY.string_or_null(
    "sasl.oauthbearer.expected.issuer", "Issuer that a token must name.", mark=WORKS
)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME: Final = SECURITY.string(
    "sasl.oauthbearer.scope.claim.name", "scope", "Claim of a token that holds its scopes.", mark=WORKS
)
SECURITY.boolean("sasl.oauthbearer.header.urlencode", False, "Whether client credentials are URL-encoded.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Final = SECURITY.string(
    "sasl.oauthbearer.sub.claim.name", "sub", "Claim of a token that names the user.", mark=WORKS
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Final = SECURITY.integer(
    "sasl.oauthbearer.clock.skew.seconds",
    30,
    "Difference of clocks that is forgiven in a token's times.",
    mark=WORKS,
)
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL: Final = SECURITY.string_or_null(
    "sasl.oauthbearer.token.endpoint.url",
    "File with the token by which this broker logs in to others (file:///PATH); read again for each login.",
    mark=WORKS,
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS: Final = SECURITY.long(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    3_600_000,
    "How often the signing keys are fetched again.",
    mark=WORKS,
)
SECURITY.long(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, "First wait between attempts to fetch keys."
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS: Final = SECURITY.long(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    10_000,
    "Longest wait between such attempts.",
    mark=WORKS,
)

ENCODER_ITERATIONS_MAX: Final = 1_000_000
"""About a second of work: a text that somebody has written into the tree must not keep a broker busy for longer."""
PASSWORD_ENCODER_SECRET: Final = SECURITY.password(
    "password.encoder.secret",
    "Secret with which passwords among dynamic broker options are encrypted before they are put into the metadata tree.",
    mark=WORKS,
)
PASSWORD_ENCODER_OLD_SECRET: Final = SECURITY.password(
    "password.encoder.old.secret",
    "The previous secret, while it is being changed: at the start, what it decrypts is encrypted with the new one.",
    mark=WORKS,
)
PASSWORD_ENCODER_ITERATIONS: Final = SECURITY.integer(
    "password.encoder.iterations",
    4096,
    "Number of iterations with which a key is derived from that secret.",
    lo=1024,
    hi=ENCODER_ITERATIONS_MAX,
    mark=WORKS,
)
PASSWORD_ENCODER_KEY_LENGTH: Final = SECURITY.integer(
    "password.encoder.key.length",
    128,
    "Length of that key in bits: 128, 192 or 256.",
    lo=128,
    hi=256,
    mark=WORKS,
)

SSL_KEYSTORE_LOCATION: Final = SECURITY.string_or_null(
    "ssl.keystore.location", "File with the broker's key and certificates.", mode=PER_BROKER, mark=WORKS
)
SSL_KEYSTORE_PASSWORD: Final = SECURITY.password(
    "ssl.keystore.password", "Password of that file.", mode=PER_BROKER, mark=WORKS
)
SSL_KEYSTORE_TYPE: Final = SECURITY.string(
    "ssl.keystore.type", "JKS", "Format of that file: PEM, PKCS12 or JKS.", mode=PER_BROKER
)
SSL_KEYSTORE_KEY: Final = SECURITY.password(
    "ssl.keystore.key", "The broker's private key itself, in PEM.", mode=PER_BROKER, mark=WORKS
)
SSL_KEYSTORE_CERTIFICATE_CHAIN: Final = SECURITY.password(
    "ssl.keystore.certificate.chain",
    "The broker's certificates themselves, in PEM.",
    mode=PER_BROKER,
    mark=WORKS,
)
SSL_KEY_PASSWORD: Final = SECURITY.password(
    "ssl.key.password", "Password of the private key.", mode=PER_BROKER, mark=WORKS
)
SSL_TRUSTSTORE_LOCATION: Final = SECURITY.string_or_null(
    "ssl.truststore.location",
    "File with the certificates that clients' certificates are checked against.",
    mode=PER_BROKER,
    mark=WORKS,
)
SSL_TRUSTSTORE_PASSWORD: Final = SECURITY.password(
    "ssl.truststore.password", "Password of that file.", mode=PER_BROKER, mark=WORKS
)
SSL_TRUSTSTORE_TYPE: Final = SECURITY.string(
    "ssl.truststore.type", "JKS", "Format of that file: PEM, PKCS12 or JKS.", mode=PER_BROKER
)
SSL_TRUSTSTORE_CERTIFICATES: Final = SECURITY.password(
    "ssl.truststore.certificates", "Trusted certificates themselves, in PEM.", mode=PER_BROKER, mark=WORKS
)
SSL_CLIENT_AUTH: Final = SECURITY.string(
    "ssl.client.auth",
    "none",
    "Whether clients must show a certificate.",
    choices=("required", "requested", "none"),
    mode=PER_BROKER,
    mark=WORKS,
)
SSL_ENABLED_PROTOCOLS: Final = SECURITY.strings(
    "ssl.enabled.protocols",
    ("TLSv1.2", "TLSv1.3"),
    "TLS versions that are offered.",
    mode=PER_BROKER,
    mark=WORKS,
)
SSL_PROTOCOL: Final = SECURITY.string("ssl.protocol", "TLSv1.3", "Highest TLS version.", mode=PER_BROKER)
SSL_CIPHER_SUITES: Final = SECURITY.strings(
    "ssl.cipher.suites",
    (),
    "Cipher suites that are offered; empty means the library's own.",
    mode=PER_BROKER,
    mark=WORKS,
)
SSL_PRINCIPAL_MAPPING_RULES: Final = SECURITY.string(
    "ssl.principal.mapping.rules",
    "DEFAULT",
    "Rules that make a principal of a certificate's subject.",
    mark=WORKS,
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: Final = SECURITY.string(
    "ssl.endpoint.identification.algorithm",
    "https",
    "Whether host names are checked when this broker connects; empty means no.",
    mode=PER_BROKER,
    mark=WORKS,
)
SECURITY.string_or_null("ssl.provider", "Java security provider.", mode=PER_BROKER, mark=IGNORED)
SECURITY.string("ssl.keymanager.algorithm", "SunX509", "Java key manager.", mode=PER_BROKER, mark=IGNORED)
SECURITY.string("ssl.trustmanager.algorithm", "PKIX", "Java trust manager.", mode=PER_BROKER, mark=IGNORED)
SECURITY.string_or_null(
    "ssl.secure.random.implementation", "Java random source.", mode=PER_BROKER, mark=IGNORED
)
SSL_ALLOW_DN_CHANGES: Final = SECURITY.boolean(
    "ssl.allow.dn.changes", False, "Let a reloaded certificate have another subject.", mark=WORKS
)
SSL_ALLOW_SAN_CHANGES: Final = SECURITY.boolean(
    "ssl.allow.san.changes", False, "Let a reloaded certificate have other alternative names.", mark=WORKS
)
SECURITY.string_or_null("security.providers", "Java security providers.", mark=IGNORED)

DELEGATION_TOKEN_SECRET_KEY: Final = SECURITY.password(
    "delegation.token.secret.key",
    "Secret that signs delegation tokens; the same on every broker.",
    mark=WORKS,
)
DELEGATION_TOKEN_MAX_LIFETIME_MS: Final = SECURITY.long(
    "delegation.token.max.lifetime.ms", 604_800_000, "Longest life of a delegation token.", lo=1, mark=WORKS
)
DELEGATION_TOKEN_EXPIRY_TIME_MS: Final = SECURITY.long(
    "delegation.token.expiry.time.ms",
    86_400_000,
    "Life of a delegation token that is not renewed.",
    lo=1,
    mark=WORKS,
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS: Final = SECURITY.long(
    "delegation.token.expiry.check.interval.ms",
    3_600_000,
    "How often expired tokens are removed.",
    lo=1,
    mark=WORKS,
)
