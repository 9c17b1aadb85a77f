"""The security options of one listener: its own (`listener.name.NAME.*`) over those of the whole broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.config.option import Option

T = TypeVar("T")


class ListenerOptions:
    """Reads options as Kafka resolves them: listener and mechanism, listener, broker, default."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self.listener = listener

    def get(self, option: Option[T], mechanism: str = "") -> T:
        """The value in effect. Raises ConfigError for a value that the option does not accept."""
        text = self.text(option, mechanism)
        return self._config.get(option) if text is None else option.parse(text)

    def text(self, option: Option[Any], mechanism: str = "") -> str | None:
        """The value that is set for the listener itself; None if the broker's value applies."""
        for name in self._names(option.name, mechanism):
            text = self._config.texts(name)
            if text is not None:
                return text
        return None

    def name_of(self, option: Option[Any], mechanism: str = "") -> str:
        """The name under which the value in effect was set, for messages."""
        for name in self._names(option.name, mechanism):
            if self._config.texts(name) is not None:
                return name
        return option.name

    def _names(self, name: str, mechanism: str) -> tuple[str, ...]:
        prefix = f"listener.name.{self.listener.lower()}."
        if not mechanism:
            return (prefix + name,)
        return f"{prefix}{mechanism.lower()}.{name}", prefix + name

    def as_dict(self, *options: Option[Any]) -> dict[str, Any]:
        """The values in effect, by name; callers compare them to detect changes."""
        return {option.name: cast(Any, self.get(option)) for option in options}
