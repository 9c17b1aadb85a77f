"""Reads server.properties and the command line into a BrokerConfig.

Options known to Kafka are accepted; unknown and retired ones are accepted with a warning; a bad value raises
ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from barnabas.config import broker_groups, broker_identity, broker_log, log_levels
from barnabas.config.broker_options import BROKER, TOPIC_SYNONYM, listener_base_name, retired_reason
from barnabas.config.listeners import Listener, parse_listeners, parse_protocol_map
from barnabas.config.option import ConfigError, Option, refused
from barnabas.config.properties import parse_properties
from barnabas.config.providers import Providers, is_parameter
from barnabas.config.topic_options import TOPIC

T = TypeVar("T")

OLD_ADDRESSES: Final = ("port", "host.name", "advertised.port", "advertised.host.name")
DEFAULT_PORT: Final = 9092
PORT_MAX: Final = 65535
MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000
EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class BrokerConfig:
    """Every broker option's value, and where it comes from.

    Three layers of texts override the defaults: static (file and command line), dynamic for the whole cluster, dynamic
    for this broker. `set_dynamic` changes the dynamic layers in place, so that all holders of the config see the new
    values.
    """

    def __init__(self, static: Mapping[str, str] = EMPTY, warnings: tuple[str, ...] = ()) -> None:
        """static: option name -> text. Raises ConfigError for a bad value or contradictory values."""
        self.static: Mapping[str, str] = MappingProxyType(dict(static))
        self.dynamic_default: Mapping[str, str] = EMPTY
        self.dynamic_broker: Mapping[str, str] = EMPTY
        self.warnings = warnings
        self.secret_files: tuple[str, ...] = ()
        """Files that passwords of the options stand in."""
        self._values: dict[str, Any] = self._resolve()
        self._check()

    def get(self, option: Option[T]) -> T:
        """The value in effect, typed by the option: `config.get(LOG_SEGMENT_BYTES)` is an int."""
        return cast(T, self._values[option.name])

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def is_set(self, option: Option[Any]) -> bool:
        """Whether some layer sets the option, so that its value is not just the default."""
        name = option.name
        return name in self.static or name in self.dynamic_default or name in self.dynamic_broker

    def texts(self, name: str) -> str | None:
        """The text from the layer with the highest precedence that sets `name`; None if none does."""
        for layer in (self.dynamic_broker, self.dynamic_default, self.static):
            if name in layer:
                return layer[name]
        return None

    def set_dynamic(self, *, default: Mapping[str, str] = EMPTY, broker: Mapping[str, str] = EMPTY) -> None:
        """Replace the dynamic layers. Raises ConfigError for a bad value, with nothing changed."""
        before = self.dynamic_default, self.dynamic_broker
        self.dynamic_default, self.dynamic_broker = (
            MappingProxyType(dict(default)),
            MappingProxyType(dict(broker)),
        )
        try:
            self._values = self._resolve()
        except ConfigError:
            self.dynamic_default, self.dynamic_broker = before
            raise

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """The texts of all names with this prefix (listener.name.external.), which is removed from the names."""
        layers: dict[str, str] = {**self.static, **self.dynamic_default, **self.dynamic_broker}
        return {name[len(prefix) :]: text for name, text in layers.items() if name.startswith(prefix)}

    @property
    def node_id(self) -> int:
        """This broker's id: node.id, otherwise broker.id, otherwise 1."""
        return self.get(broker_identity.NODE_ID)

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The folders that contain partitions: log.dirs, otherwise log.dir."""
        texts = self.get(broker_identity.LOG_DIRS) or self.get(broker_identity.LOG_DIR)
        return tuple(Path(text) for text in texts)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses on which to accept connections."""
        return self._listeners(broker_identity.LISTENERS)

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses for clients; empty if each connection receives the address that it connected to."""
        return self._listeners(broker_identity.ADVERTISED_LISTENERS)

    def _listeners(self, option: Option[Any]) -> tuple[Listener, ...]:
        protocols = parse_protocol_map(self.get(broker_identity.LISTENER_SECURITY_PROTOCOL_MAP))
        return parse_listeners(option.name, self.get(option) or (), protocols)

    @property
    def inter_broker_listener(self) -> Listener | None:
        """The listener that brokers use among themselves: the one that is named, otherwise the first with
        security.inter.broker.protocol; None if no listener is for brokers."""
        name = self.get(broker_identity.INTER_BROKER_LISTENER_NAME)
        protocol = self.get(broker_identity.SECURITY_INTER_BROKER_PROTOCOL)
        for listener in self.listeners:
            if listener.name == name.upper() if name else listener.security_protocol == protocol:
                return listener
        return None

    @property
    def logger_levels(self) -> dict[str, int]:
        """The levels of single loggers, by logger name (logger.NAME)."""
        return log_levels.levels_in(self.static)

    @property
    def retention_ms(self) -> int:
        """Default retention.ms of topics: log.retention.ms, otherwise .minutes, otherwise .hours; -1 for unlimited."""
        value = self.get(broker_log.LOG_RETENTION_MS)
        if value is None:
            minutes = self.get(broker_log.LOG_RETENTION_MINUTES)
            value = (
                self.get(broker_log.LOG_RETENTION_HOURS) * MS_PER_HOUR
                if minutes is None
                else minutes * MS_PER_MINUTE
            )
        return -1 if value < 0 else value

    @property
    def segment_ms(self) -> int:
        """Default segment.ms of topics: log.roll.ms, otherwise log.roll.hours."""
        value = self.get(broker_log.LOG_ROLL_MS)
        return self.get(broker_log.LOG_ROLL_HOURS) * MS_PER_HOUR if value is None else value

    @property
    def segment_jitter_ms(self) -> int:
        """Default segment.jitter.ms of topics: log.roll.jitter.ms, otherwise log.roll.jitter.hours."""
        value = self.get(broker_log.LOG_ROLL_JITTER_MS)
        return self.get(broker_log.LOG_ROLL_JITTER_HOURS) * MS_PER_HOUR if value is None else value

    @property
    def flush_ms(self) -> int:
        """Default flush.ms of topics: log.flush.interval.ms, otherwise the scheduler's interval."""
        value = self.get(broker_log.LOG_FLUSH_INTERVAL_MS)
        return self.get(broker_log.LOG_FLUSH_SCHEDULER_INTERVAL_MS) if value is None else value

    def topic_default(self, name: str) -> Any:
        """A topic config's value on this broker if the topic does not set it. KeyError if unknown."""
        option = TOPIC[name]
        derived = _DERIVED.get(name)
        if derived is not None:
            return derived.__get__(self)
        synonym = TOPIC_SYNONYM.get(name)
        return option.default if synonym is None else self._values[synonym]

    def _resolve(self) -> dict[str, Any]:
        values: dict[str, Any] = {option.name: option.default for option in BROKER}
        for layer in (self.static, self.dynamic_default, self.dynamic_broker):
            for name, text in layer.items():
                option = BROKER.find(name)
                if option is not None:
                    values[name] = option.parse(text)
                elif (base := BROKER.find(listener_base_name(name) or "")) is not None:
                    base.parse(text)
        # node.id and broker.id are two names for the same option; -1 asks for a generated id.
        node_id = values["node.id"] if "node.id" in self.static else values["broker.id"]
        values["node.id"] = values["broker.id"] = node_id if node_id >= 0 else broker_identity.NODE_ID.default
        return values

    def _check(self) -> None:
        """Raises ConfigError for values that contradict each other."""
        names = {listener.name for listener in self.listeners}
        known = f"one of listeners ({', '.join(sorted(names))})"
        for listener in self.advertised_listeners:
            if listener.name not in names:
                raise refused("advertised.listeners", listener, f"its name must be {known}")
            if not listener.host:
                raise refused("advertised.listeners", listener, "must name a host that clients can reach")
        inter_broker = self.get(broker_identity.INTER_BROKER_LISTENER_NAME)
        if inter_broker is not None and inter_broker.upper() not in names:
            raise refused("inter.broker.listener.name", inter_broker, f"must be {known}")
        protocol = broker_identity.SECURITY_INTER_BROKER_PROTOCOL
        if inter_broker is not None and self.is_set(protocol):
            raise refused(
                protocol.name, self.get(protocol), "must not be set together with inter.broker.listener.name"
            )
        if self.is_set(protocol) and self.inter_broker_listener is None:
            raise refused(protocol.name, self.get(protocol), "must be the protocol of one of listeners")
        low, high = broker_groups.GROUP_MIN_SESSION_TIMEOUT_MS, broker_groups.GROUP_MAX_SESSION_TIMEOUT_MS
        if self.get(low) > self.get(high):
            raise refused(
                low.name, self.get(low), f"must not be above {high.name}, which is {self.get(high)}"
            )


_DERIVED: Final[Mapping[str, Any]] = {
    "retention.ms": BrokerConfig.retention_ms,
    "segment.ms": BrokerConfig.segment_ms,
    "segment.jitter.ms": BrokerConfig.segment_jitter_ms,
    "flush.ms": BrokerConfig.flush_ms,
}


def load(file: Path | None = None, overrides: Mapping[str, str] = EMPTY) -> BrokerConfig:
    """The configuration of a broker.

    file: a server.properties. overrides: option name -> text; they take precedence over the file.
    Raises ConfigError naming the place, the option, the value and what is allowed;
    OSError if the file cannot be read.
    """
    static: dict[str, str] = {}
    warnings: list[str] = []
    lines = [] if file is None else _read(file)
    providers = Providers({**{name: text for name, text, _ in lines}, **overrides})
    for name, text, line in lines:
        where = f"{file}:{line}"
        if name in static:
            warnings.append(f"{where}: {name} is set again; the last value counts")
        _take(where, name, text, static, warnings, providers)
    for name, text in overrides.items():
        _take("command line", name, text, static, warnings, providers)
    warnings += _honour_old_addresses(static)
    try:
        config = BrokerConfig(static, tuple(warnings))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if file is not None else str(error)) from None
    holds = any(_is_secret(name) and providers.expand(text) == text for name, text, _ in lines)
    config.secret_files = (*([str(file)] if holds else ()), *providers.files)
    return config


def _is_secret(name: str) -> bool:
    option = BROKER.find(name) or BROKER.find(listener_base_name(name) or "")
    return option is not None and option.sensitive


def _honour_old_addresses(static: dict[str, str]) -> Iterator[str]:
    """Convert the old options `port` and `host.name` in `static` to a listener, or warn if one is given."""
    for prefix in ("advertised.", ""):
        host, port = static.pop(f"{prefix}host.name", None), static.pop(f"{prefix}port", None)
        if host is None and port is None:
            continue
        if f"{prefix}listeners" in static:
            ignored = f"{prefix}host.name" if port is None else f"{prefix}port"
            yield f"{ignored} has no effect, because {prefix}listeners is set: change {prefix}listeners"
            continue
        if port is not None and not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
            raise refused(f"{prefix}port", port, f"must be a whole number from 0 to {PORT_MAX}")
        if prefix and host is None:
            host = static.get("host.name") or "localhost"
        static[f"{prefix}listeners"] = f"PLAINTEXT://{host or ''}:{port or DEFAULT_PORT}"


def _read(file: Path) -> list[tuple[str, str, int]]:
    raw = file.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # the encoding that Java uses
    try:
        return list(parse_properties(text))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _take(
    where: str, name: str, text: str, static: dict[str, str], warnings: list[str], providers: Providers
) -> None:
    """Check one setting and add it to `static`, or to `warnings` if it has no effect."""
    if is_parameter(name):
        return
    if name in OLD_ADDRESSES:
        static[name] = text.strip()
        return
    if log_levels.logger_name(name) is not None:
        try:
            log_levels.parse_level(name, text)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        static[name] = text.strip()
        return
    option = BROKER.find(name) or BROKER.find(listener_base_name(name) or "")
    if option is None:
        warnings.append(f"{where}: {_why_unknown(name)}")
        return
    try:
        expanded = providers.expand(text.strip())
        option.parse(expanded)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    static[name] = expanded


def _why_unknown(name: str) -> str:
    reason = retired_reason(name)
    if reason is not None:
        return f"{name} has no effect: {reason}"
    from difflib import get_close_matches

    near = get_close_matches(name, list(BROKER.names()), n=1, cutoff=0.8)
    return f"{name} is not a known option and has no effect" + (f"; did you mean {near[0]}?" if near else "")
