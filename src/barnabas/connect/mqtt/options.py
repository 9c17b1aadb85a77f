"""The options of the MQTT connectors: Lenses' (connect.mqtt.*) and Confluent's (mqtt.*), and one login of either."""

from __future__ import annotations

from typing import Any, Final

from barnabas.connect.mqtt.link import Login, addresses_of
from barnabas.connect.options import Config, ConnectorOption, Importance, Type, not_empty

LENSES: Final = (
    ConnectorOption(
        "connect.mqtt.kcql",
        importance=Importance.HIGH,
        doc="What goes where: INSERT INTO target SELECT * FROM source; several statements between semicolons.",
        check=not_empty,
    ),
    ConnectorOption(
        "connect.mqtt.hosts",
        Type.LIST,
        importance=Importance.HIGH,
        doc="Brokers like tcp://host:1883, ssl://host:8883.",
    ),
    ConnectorOption(
        "connect.mqtt.username", default=None, importance=Importance.HIGH, doc="User of the broker."
    ),
    ConnectorOption("connect.mqtt.password", Type.PASSWORD, None, Importance.HIGH, "That user's password."),
    ConnectorOption(
        "connect.mqtt.service.quality", Type.INT, 1, doc="Quality of service: 0, 1 or 2.", lo=0, hi=2
    ),
    ConnectorOption(
        "connect.mqtt.client.id",
        default=None,
        doc="Name of the client, which no other one may have. Empty: the connector's name.",
    ),
    ConnectorOption(
        "connect.mqtt.connection.timeout",
        Type.INT,
        3000,
        Importance.LOW,
        "How long to wait for the broker, in ms.",
        lo=1,
    ),
    ConnectorOption(
        "connect.mqtt.connection.clean",
        Type.BOOLEAN,
        True,
        doc="false: the broker keeps messages while the connector is away, and again those that were not stored.",
    ),
    ConnectorOption(
        "connect.mqtt.connection.keep.alive",
        Type.INT,
        5000,
        Importance.LOW,
        "Between signs of life, in ms.",
        lo=1000,
    ),
    ConnectorOption(
        "connect.mqtt.connection.ssl.ca.cert", default=None, doc="File with certificates of authorities."
    ),
    ConnectorOption(
        "connect.mqtt.connection.ssl.cert", default=None, doc="File with the client's certificate."
    ),
    ConnectorOption("connect.mqtt.connection.ssl.key", default=None, doc="File with the client's key."),
)
LENSES_SOURCE: Final = (
    *LENSES,
    ConnectorOption(
        "connect.mqtt.converter.throw.on.error",
        Type.BOOLEAN,
        False,
        doc="Whether a message that WITHCONVERTER cannot read stops the task; otherwise it is left out, with a warning.",
    ),
    ConnectorOption(
        "connect.mqtt.process.duplicates",
        Type.BOOLEAN,
        True,
        Importance.LOW,
        "Whether repeated messages count.",
    ),
    ConnectorOption(
        "connect.mqtt.polling.timeout", Type.INT, 1000, Importance.LOW, "How long a poll waits, in ms.", lo=1
    ),
)
CONFLUENT: Final = (
    ConnectorOption(
        "mqtt.server.uri", Type.LIST, importance=Importance.HIGH, doc="Brokers like tcp://host:1883."
    ),
    ConnectorOption("mqtt.username", default=None, importance=Importance.HIGH, doc="User of the broker."),
    ConnectorOption("mqtt.password", Type.PASSWORD, None, Importance.HIGH, "That user's password."),
    ConnectorOption("mqtt.qos", Type.INT, 0, doc="Quality of service: 0, 1 or 2.", lo=0, hi=2),
    ConnectorOption("mqtt.client.id", default=None, doc="Name of the client. Empty: the connector's name."),
    ConnectorOption(
        "mqtt.connect.timeout.seconds", Type.INT, 30, Importance.LOW, "How long to wait for the broker.", lo=1
    ),
    ConnectorOption(
        "mqtt.clean.session.enabled",
        Type.BOOLEAN,
        True,
        doc="false: the broker keeps messages while the connector is away, and again those that were not stored.",
    ),
    ConnectorOption(
        "mqtt.keepalive.interval.seconds", Type.INT, 60, Importance.LOW, "Between signs of life.", lo=1
    ),
    ConnectorOption("mqtt.ssl.ca.cert", default=None, doc="File with certificates of authorities (PEM)."),
    ConnectorOption("mqtt.ssl.cert", default=None, doc="File with the client's certificate (PEM)."),
    ConnectorOption("mqtt.ssl.key", default=None, doc="File with the client's key (PEM)."),
)
CONFLUENT_SOURCE: Final = (
    *CONFLUENT,
    ConnectorOption(
        "mqtt.topics", Type.LIST, importance=Importance.HIGH, doc="Topics of MQTT, with + and #."
    ),
    ConnectorOption(
        "kafka.topic", default="mqtt", importance=Importance.HIGH, doc="The topic for all messages."
    ),
)
CONFLUENT_SINK: Final = (
    *CONFLUENT,
    ConnectorOption(
        "mqtt.retained.messages.enabled",
        Type.BOOLEAN,
        False,
        doc="Whether the broker keeps the last message of a topic.",
    ),
)


def lenses_login(config: Config, name: str) -> Login:
    """Raises OptionError."""
    return Login(
        addresses_of(config["connect.mqtt.hosts"], "connect.mqtt.hosts"),
        config["connect.mqtt.client.id"] or name,
        config["connect.mqtt.username"],
        config["connect.mqtt.password"],
        config["connect.mqtt.connection.clean"],
        config["connect.mqtt.connection.timeout"] / 1000,
        max(config["connect.mqtt.connection.keep.alive"] // 1000, 1),
        config["connect.mqtt.connection.ssl.ca.cert"],
        config["connect.mqtt.connection.ssl.cert"],
        config["connect.mqtt.connection.ssl.key"],
    )


def confluent_login(config: Config, name: str) -> Login:
    """Raises OptionError."""
    return Login(
        addresses_of(config["mqtt.server.uri"], "mqtt.server.uri"),
        config["mqtt.client.id"] or name,
        config["mqtt.username"] or None,
        config["mqtt.password"] or None,
        config["mqtt.clean.session.enabled"],
        float(config["mqtt.connect.timeout.seconds"]),
        config["mqtt.keepalive.interval.seconds"],
        config["mqtt.ssl.ca.cert"],
        config["mqtt.ssl.cert"],
        config["mqtt.ssl.key"],
    )


def path_in(value: Any, path: str) -> Any:
    """The value at a path like place.room in dicts; None without one."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
