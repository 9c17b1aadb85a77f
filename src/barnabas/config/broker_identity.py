"""Broker options: this broker's identity and listeners, and KRaft options that have no use here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.config.option import Mark, Mode, OptionTable

IDENTITY: Final = OptionTable("Identity and listeners")

WORKS: Final = Mark.WORKS
IGNORED: Final = Mark.IGNORED

_LISTENER: Final = re.compile(r"[A-Za-z0-9._-]+://(\[[0-9A-Fa-f:.%a-z]+\]|[^:/\[\]]*):\d{1,5}")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def listener_list(value: tuple[str, ...]) -> str | None:
    """Checks a list of NAME://HOST:PORT with distinct names and ports up to 65535; returns what is wrong, or None."""
    for item in value:
        if not _LISTENER.fullmatch(item) or int(item.rpartition(":")[2]) > 65535:
            return f"{item!r} must be NAME://HOST:PORT, for example PLAINTEXT://localhost:9092"
    names = [item.partition("://")[0].upper() for item in value]
    if len(set(names)) < len(names):
        return "each listener must have a different name"
    return None if value else "at least one NAME://HOST:PORT must be given"


def protocol_map(value: str) -> str | None:
    """Checks NAME:PROTOCOL,NAME:PROTOCOL; returns what is wrong, or None."""
    for item in value.split(","):
        name, _, protocol = item.strip().partition(":")
        if item.strip() and (not name or protocol.strip().upper() not in _PROTOCOLS):
            return f"{item.strip()!r} must be LISTENER:PROTOCOL with one of {', '.join(_PROTOCOLS)}"
    return None


NODE_ID: Final = IDENTITY.integer(
    "node.id",
    1,
    "Id of this broker, unique in its cluster. The default is 1; Kafka requires a value.",
    lo=0,
    mark=WORKS,
)
BROKER_ID: Final = IDENTITY.integer("broker.id", 1, "Older name of node.id.", lo=-1, mark=WORKS)
IDENTITY.strings(
    "process.roles",
    (),
    "Roles of a KRaft process; every Barnabas broker can be the controller.",
    choices=("broker", "controller"),
    mark=IGNORED,
)
LISTENERS: Final = IDENTITY.strings(
    "listeners",
    ("PLAINTEXT://:9092",),
    "Addresses to accept connections on, each NAME://HOST:PORT; an empty host "
    "means every interface, port 0 any free port.",
    check=listener_list,
    mode=Mode.PER_BROKER,
    mark=WORKS,
)
ADVERTISED_LISTENERS: Final = IDENTITY.strings_or_null(
    "advertised.listeners",
    "Addresses given to clients. Without it, a broker that stands alone gives each client the address that it "
    "connected to, and brokers of a cluster give those in listeners.",
    check=listener_list,
    mark=WORKS,
)
LISTENER_SECURITY_PROTOCOL_MAP: Final = IDENTITY.string(
    "listener.security.protocol.map",
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "The security protocol of each listener name.",
    check=protocol_map,
    mode=Mode.PER_BROKER,
    mark=WORKS,
)
INTER_BROKER_LISTENER_NAME: Final = IDENTITY.string_or_null(
    "inter.broker.listener.name", "Listener that brokers use among themselves.", mark=WORKS
)
SECURITY_INTER_BROKER_PROTOCOL: Final = IDENTITY.string(
    "security.inter.broker.protocol",
    "PLAINTEXT",
    "Security protocol between brokers, when no listener is named.",
    choices=_PROTOCOLS,
    mark=WORKS,
)


def log_dirs(value: Sequence[str] | None) -> str | None:
    """What is allowed, if a list of log dirs has an empty entry or names one folder twice; otherwise None."""
    if not value or not all(value):
        return "must name folders, none of them empty"
    seen: dict[str, str] = {}
    for text in value:
        real = os.path.realpath(text)
        if real in seen:
            return f"Duplicate log directory found: {seen[real]} and {text} are the same folder"
        seen[real] = text
    return None


LOG_DIR: Final = IDENTITY.strings(
    "log.dir",
    ("/tmp/kafka-logs",),
    "Folder of the log when log.dirs is not set. `barnabas start` sets log.dirs "
    "itself when neither is given.",
    check=log_dirs,
    mark=WORKS,
)
LOG_DIRS: Final = IDENTITY.strings_or_null(
    "log.dirs",
    "Folders that contain partitions; a new partition goes to the folder with the fewest.",
    check=log_dirs,
    mark=WORKS,
)
LOG_DIR_MODES: Final[Mapping[str, int]] = {"owner": 0o700, "group": 0o750, "everybody": 0o755}
"""The permissions of a new log dir, by log.dirs.permissions."""
LOG_DIRS_PERMISSIONS: Final = IDENTITY.string(
    "log.dirs.permissions",
    "owner",
    "Who may read log dirs that the broker makes: the user that it runs as, that user's group too, or everybody on the "
    "machine (the umask can take away from that). New files are as open as their log dir. Dirs that are there keep their "
    "permissions; the start warns of those that are more open than this. Kafka has no such option.",
    choices=tuple(LOG_DIR_MODES),
    mark=WORKS,
)
CORDONED_LOG_DIRS: Final = IDENTITY.strings(
    "cordoned.log.dirs", (), "Folders that get no new partitions; `*` means all.", mode=Mode.PER_BROKER
)
BROKER_RACK: Final = IDENTITY.string_or_null(
    "broker.rack",
    "Rack or zone of this broker: shown to clients, and used to spread replicas over racks.",
    mark=WORKS,
)
IDENTITY.integer(
    "broker.heartbeat.interval.ms", 2000, "Time between a broker's heartbeats to a KRaft controller."
)
IDENTITY.integer("broker.session.timeout.ms", 9000, "Silence after which a KRaft controller fences a broker.")
IDENTITY.integer(
    "initial.broker.registration.timeout.ms", 60_000, "Time that a broker has to register when it starts."
)
CONTROLLER_QUORUM_IGNORED: Final = "Belongs to KRaft's quorum, which Barnabas does not have."
for _name in ("controller.listener.names", "controller.quorum.voters", "controller.quorum.bootstrap.servers"):
    IDENTITY.strings(_name, (), CONTROLLER_QUORUM_IGNORED, mark=IGNORED)
for _name, _default in (
    ("controller.quorum.election.timeout.ms", 1000),
    ("controller.quorum.fetch.timeout.ms", 2000),
    ("controller.quorum.request.timeout.ms", 2000),
    ("controller.quorum.retry.backoff.ms", 20),
    ("controller.quorum.election.backoff.max.ms", 1000),
    ("controller.quorum.append.linger.ms", 25),
    ("controller.quorum.fetch.max.bytes", 1_048_576),
    ("controller.quorum.fetch.snapshot.max.bytes", 1_048_576),
):
    IDENTITY.integer(_name, _default, CONTROLLER_QUORUM_IGNORED, lo=0, mark=IGNORED)
IDENTITY.boolean("controller.quorum.auto.join.enable", False, CONTROLLER_QUORUM_IGNORED, mark=IGNORED)
METADATA_LOG_IGNORED: Final = "Belongs to KRaft's metadata log; Barnabas keeps metadata in a znode tree."
IDENTITY.string_or_null("metadata.log.dir", METADATA_LOG_IGNORED, mark=IGNORED)
for _name, _default in (
    ("metadata.log.segment.bytes", 1 << 30),
    ("metadata.max.idle.interval.ms", 500),
):
    IDENTITY.integer(_name, _default, METADATA_LOG_IGNORED, lo=0, mark=IGNORED)
for _name, _default in (
    ("metadata.log.segment.ms", 604_800_000),
    ("metadata.log.max.record.bytes.between.snapshots", 20_971_520),
    ("metadata.log.max.snapshot.interval.ms", 3_600_000),
    ("metadata.max.retention.bytes", 104_857_600),
    ("metadata.max.retention.ms", 604_800_000),
):
    IDENTITY.long(_name, _default, METADATA_LOG_IGNORED, mark=IGNORED)
IDENTITY.strings_or_null("early.start.listeners", "Listeners that open before the others do.", mark=IGNORED)
IDENTITY.integer(
    "controller.socket.timeout.ms",
    30_000,
    "Time-out of requests from the controller to a broker.",
    mark=IGNORED,
)
CONTROLLED_SHUTDOWN_ENABLE: Final = IDENTITY.boolean(
    "controlled.shutdown.enable", True, "Hand over leadership before the broker stops.", mark=WORKS
)
IDENTITY.long(
    "controller.performance.sample.period.ms",
    60_000,
    "How often a KRaft controller logs a summary of its slow events.",
    lo=100,
    mark=IGNORED,
)
IDENTITY.long(
    "controller.performance.always.log.threshold.ms",
    2000,
    "Time above which a KRaft controller logs an event as slow.",
    lo=0,
    mark=IGNORED,
)
CONFIG_PROVIDERS: Final = IDENTITY.strings(
    "config.providers",
    (),
    "Names of config providers, each with a `config.providers.NAME.class`: `FileConfigProvider`, `DirectoryConfigProvider` "
    "or `EnvVarConfigProvider`. `file`, `dir` and `env` need not be declared.",
    mode=Mode.CLUSTER,
    mark=WORKS,
)
