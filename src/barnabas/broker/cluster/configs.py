"""Options of topics, brokers, groups and client metrics: described and changed, over the cluster image."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster import loggers
from barnabas.config.describe import (
    Entry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from barnabas.config.dynamic import (
    Change,
    Operation,
    Resource,
    TopicConfig,
    altered_broker_configs,
    altered_client_metrics,
    altered_group_configs,
    altered_topic_configs,
    is_secret,
    new_topic_configs,
    unknown_broker_names,
)
from barnabas.config.option import ConfigError
from barnabas.config.topic_options import BARNABAS_LINK, TOPIC
from barnabas.cores import topic_names
from barnabas.cores.cluster_image import INTERNAL_TOPICS, ClusterImage
from barnabas.cores.controller import require_topic
from barnabas.cores.znode_layout import DEFAULT_ENTITY
from barnabas.security.passwords import CannotDecrypt, Passwords, is_encrypted
from barnabas.storage.config import LogConfig
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

log = logging.getLogger("barnabas.controller")

ConfigEntry = Entry

RESOURCE_FOLDERS: Final[Mapping[int, str]] = {
    Resource.TOPIC: "topics",
    Resource.BROKER: "brokers",
    Resource.GROUP: "groups",
    Resource.CLIENT_METRICS: "client-metrics",
}
"""Where the options of each type of resource are stored under /config."""


CLIENT_SECRETS: Final = ("password", "sasl.jaas.config", "token", "client.secret", "ssl.keystore.key")


def is_client_secret(name: str) -> bool:
    """Whether a client's option contains a secret."""
    return name.endswith(CLIENT_SECRETS)


class Configs:
    """Reads the image and the broker's own configuration; changes neither (the controller does that)."""

    def __init__(self, broker: BrokerConfig, image: ClusterImage) -> None:
        self._broker = broker
        self._image = image
        self._passwords = Passwords(broker)
        self._warned_about: set[str] = set()
        """Texts of passwords that cannot be decrypted, and unknown options, that have been logged."""

    def refresh_broker(self, node_id: int) -> None:
        """Take the dynamic broker options from the image."""
        for entity in (DEFAULT_ENTITY, str(node_id)):
            for name in unknown_broker_names(self._image.config("brokers", entity)):
                if name not in self._warned_about:
                    self._warned_about.add(name)
                    log.warning("an option that brokers do not have is set", extra={"option": name})
        self._broker.set_dynamic(
            default=self._opened(self._image.config("brokers", DEFAULT_ENTITY)),
            broker=self._opened(self._image.config("brokers", str(node_id))),
        )

    def _opened(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The options in `texts` with their passwords decrypted; those that cannot be decrypted are left out."""
        opened = dict(texts)
        for name, text in texts.items():
            if is_secret(name):
                try:
                    opened[name] = self._passwords.decode(text)
                except CannotDecrypt as error:
                    if text not in self._warned_about:
                        self._warned_about.add(text)
                        log.error(
                            "a dynamic password has no effect", extra={"option": name, "reason": str(error)}
                        )
                    del opened[name]
        return opened

    def sealed_again(self, node_id: int) -> dict[str, str] | None:
        """This broker's options with every password encrypted with the current secret; None if they already are.

        Passwords that an earlier version stored in plain text, or that were encrypted with password.encoder.old.secret, are
        encrypted again.
        """
        texts = dict(self._image.config("brokers", str(node_id)))
        stale = [
            name for name, text in texts.items() if is_secret(name) and not self._passwords.is_fresh(text)
        ]
        for name in stale:
            texts[name] = self._passwords.encode(name, self._passwords.decode(texts[name]))
        return texts if stale else None

    def plain_passwords(self, node_id: int) -> list[str]:
        """The options whose passwords remain in plain text in the tree, because there is no secret."""
        if self._passwords.can_encode:
            return []
        texts = self._image.config("brokers", str(node_id))
        return sorted(name for name, text in texts.items() if is_secret(name) and not is_encrypted(text))

    def log_config(self, topic: str) -> LogConfig:
        """The options that apply to a topic's logs."""
        effective = TopicConfig(self._broker, self._image.config("topics", topic))
        return LogConfig.of(
            {name: effective[name] for name in TOPIC.names()}, is_internal=topic in INTERNAL_TOPICS
        )

    def check_new_topic(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """The options of a new topic, checked. Raises ApiError INVALID_CONFIG."""
        return new_topic_configs(self._broker, configs)

    def sealed(self, texts: Mapping[str, str]) -> dict[str, str]:
        """A client's options with their passwords encrypted. Raises ApiError INVALID_CONFIG without a secret for that."""
        try:
            return {
                name: self._passwords.encode(name, text) if is_client_secret(name) else text
                for name, text in texts.items()
            }
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def unsealed(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The reverse. Raises CannotDecrypt."""
        return {
            name: self._passwords.decode(text) if is_client_secret(name) else text
            for name, text in texts.items()
        }

    # --- describing ------------------------------------------------------------------------------------

    def describe(self, resource_type: int, name: str) -> list[Entry]:
        """Every option of a resource. Raises ApiError."""
        if resource_type == Resource.TOPIC:
            illegal = topic_names.refusal(name)
            if illegal is not None:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, illegal)
            require_topic(self._image, name)
            return self.describe_topic(name)
        if not name and resource_type in (Resource.GROUP, Resource.CLIENT_METRICS):
            raise ApiError(ErrorCode.INVALID_REQUEST, "the resource has no name")
        if resource_type == Resource.BROKER:
            if not name:
                return describe_cluster_default(self._broker)
            self._require_this_broker(name)
            return describe_broker(self._broker)
        if resource_type == Resource.GROUP:
            return describe_group(self._broker, self._image.config("groups", name))
        if resource_type == Resource.BROKER_LOGGER:
            self._require_this_broker(name)
            return loggers.describe()
        if resource_type == Resource.CLIENT_METRICS:
            return describe_client_metrics(self._image.config("client-metrics", name))
        raise _unknown_resource(resource_type)

    def describe_topic(self, name: str) -> list[Entry]:
        """The options of a topic, with their values and sources."""
        return describe_topic(self._broker, self._image.config("topics", name))

    def _require_this_broker(self, name: str) -> None:
        if name != str(self._broker.node_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._broker.node_id} or empty string, but received {name}",
            )

    # --- changing --------------------------------------------------------------------------------------

    def altered(
        self, resource_type: int, name: str, changes: Sequence[tuple[str, int, str | None]]
    ) -> tuple[str, str, dict[str, str]]:
        """(kind, entity, the entity's texts after the changes), checked. Raises ApiError."""
        lines = [Change(*change) for change in changes]
        if not name and resource_type in (Resource.TOPIC, Resource.GROUP, Resource.CLIENT_METRICS):
            raise ApiError(ErrorCode.INVALID_REQUEST, "the resource has no name")
        if resource_type == Resource.TOPIC:
            require_topic(self._image, name)
            texts = altered_topic_configs(self._broker, self._image.config("topics", name), lines)
            return "topics", name, texts
        if resource_type == Resource.BROKER:
            return self._altered_broker(name, lines)
        if resource_type == Resource.BROKER_LOGGER:
            self._require_this_broker(name)
            current = self._image.config(loggers.KIND, name)
            return loggers.KIND, name, loggers.altered(current, loggers.checked(lines))
        if resource_type == Resource.GROUP:
            return (
                "groups",
                name,
                altered_group_configs(self._broker, self._image.config("groups", name), lines),
            )
        if resource_type == Resource.CLIENT_METRICS:
            current = self._image.config("client-metrics", name)
            return "client-metrics", name, altered_client_metrics(current, lines)
        raise _unknown_resource(resource_type)

    def replacing(
        self, resource_type: int, name: str, texts: Mapping[str, str | None]
    ) -> list[tuple[str, int, str | None]]:
        """The changes after which a resource has exactly `texts` as its own options."""
        kind = RESOURCE_FOLDERS.get(resource_type)
        if kind is None:
            raise _unknown_resource(resource_type)
        if kind == "brokers" and not name and not texts:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, "no options are named; delete those of all brokers one by one"
            )
        entity = name or DEFAULT_ENTITY if kind == "brokers" else name
        kept = {*texts, BARNABAS_LINK.name}  # what links set stays
        gone = [option for option in self._image.config(kind, entity) if option not in kept]
        changes: list[tuple[str, int, str | None]] = [(option, Operation.DELETE, None) for option in gone]
        return changes + [(option, Operation.SET, text) for option, text in texts.items()]

    def _altered_broker(self, name: str, lines: list[Change]) -> tuple[str, str, dict[str, str]]:
        if name:
            self._require_this_broker(name)
        entity = name or DEFAULT_ENTITY
        current = self._image.config("brokers", entity)
        texts = altered_broker_configs(self._broker, self._opened(current), lines, whole_cluster=not name)
        before = self._broker.dynamic_default, self._broker.dynamic_broker
        try:
            # Try the new values first: contradictory values are refused before anything is written.
            if name:
                self._broker.set_dynamic(default=before[0], broker=texts)
            else:
                self._broker.set_dynamic(default=texts, broker=before[1])
            changed = {line.name for line in lines}
            for option in texts:
                if is_secret(option):
                    is_new = option in changed or option not in current
                    texts[option] = (
                        self._passwords.encode(option, texts[option]) if is_new else current[option]
                    )
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
        finally:
            self._broker.set_dynamic(default=before[0], broker=before[1])
        return (
            "brokers",
            entity,
            texts
            | {
                name: text
                for name, text in current.items()
                if name not in texts and name not in changed and is_secret(name)
            },
        )


def _unknown_resource(resource_type: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"resource type {resource_type} has no options; 2 (topic), 4 (broker), 8 (broker logger), 16 (client metrics) and "
        "32 (group) have",
    )
