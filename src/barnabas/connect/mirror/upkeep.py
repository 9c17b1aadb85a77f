"""Keeps the topics of the target as those of the source: they are created, and get the source's partitions, options and
access rules. Source: Kafka's MirrorSourceConnector."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from barnabas.admin import (
    AclFilter,
    AclRule,
    ChangeKind,
    Config,
    ConfigChange,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    NewTopic,
    Operation,
    Pattern,
    Permission,
    ResourceError,
    ResourceType,
    Topic,
)
from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.connect.errors import RetriableError
from barnabas.connect.mirror.flow import Flow, replicas_of
from barnabas.connect.mirror.naming import Filter
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.connect")


@dataclass
class Upkeep:
    """source, target: both clusters. Methods raise RetriableError if one of them does not answer."""

    flow: Flow
    source: Admin
    target: Admin

    @cached_property
    def _options(self) -> Filter:
        """Which options are copied."""
        config = self.flow.config
        excluded = config["config.properties.blacklist"] or config["config.properties.exclude"]
        return Filter.of([".*"], excluded)

    def topics(self) -> Mapping[str, Topic]:
        """The topics of the source that are copied; those of the target are brought up to date."""
        flow = self.flow
        try:
            topics = self.source.topics.list()
        except ClientError as error:
            raise RetriableError(f"the topics of {flow.source} cannot be listed: {error}") from error
        chosen = {name: topic for name, topic in topics.items() if flow.takes(name)}
        try:
            there = self.target.topics.list()
            missing = {name: row for name, row in chosen.items() if self._remote(name) not in there}
            self._create(missing)
            self._extend(chosen, there)
        except ClientError as error:
            raise RetriableError(f"topics of {flow.target} cannot be brought up to date: {error}") from error
        if flow.config["sync.topic.configs.enabled"]:
            self._sync_options([name for name in chosen if name not in missing])
        if flow.config["sync.topic.acls.enabled"]:
            self._sync_rules(chosen)
        return chosen

    def _remote(self, topic: str) -> str:
        return self.flow.policy.remote(self.flow.source, topic)

    # --- topics and partitions ------------------------------------------------------------------------

    def _create(self, missing: Mapping[str, Topic]) -> None:
        """Raises ClientError."""
        if not missing:
            return
        replication = replicas_of(self.target, self.flow.config["replication.factor"])
        options = self._wanted(list(missing))
        new = [
            NewTopic(self._remote(name), len(topic.partitions), replication, options.get(name, {}))
            for name, topic in missing.items()
        ]
        results = self.target.topics.create(new).except_for(ErrorCode.TOPIC_ALREADY_EXISTS)
        for name, refusal in results.failed.items():
            # An option that the target does not know must not keep the topic from being copied.
            if getattr(refusal, "code", None) != ErrorCode.INVALID_CONFIG:
                raise refusal
            log.warning("created without the source's options", extra={"topic": name, "reason": str(refusal)})
            row = next(row for row in new if row.name == name)
            self.target.topics.create([replace(row, configs={})]).require()
        log.info("topics created", extra={"flow": self._name, "topics": sorted(results.done)})

    @property
    def _name(self) -> str:
        return f"{self.flow.source}->{self.flow.target}"

    def _extend(self, chosen: Mapping[str, Topic], there: Mapping[str, Topic]) -> None:
        """Raises ClientError."""
        counts = {}
        for name, topic in chosen.items():
            copy = there.get(self._remote(name))
            if copy is not None and len(copy.partitions) < len(topic.partitions):
                counts[copy.name] = len(topic.partitions)
        if counts:
            self.target.topics.add_partitions(counts).require()
            log.info("partitions added", extra={"flow": self._name, "topics": counts})

    # --- options --------------------------------------------------------------------------------------

    def _wanted(self, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """The options that copies are to have, by the source's name of the topic. What cannot be read is left out."""
        resources = [ConfigResource(ConfigKind.TOPIC, name) for name in names]
        try:
            configs = self.source.configs.describe(resources)
        except (ClientError, UnsupportedByBroker) as error:
            log.warning("options cannot be read", extra={"flow": self._name, "reason": str(error)})
            return {}
        for resource, refusal in configs.failed.items():
            log.warning("options cannot be read", extra={"topic": resource.name, "reason": str(refusal)})
        return {
            resource.name: {row.name: row.value for row in rows.values() if self._copies(row)}
            for resource, rows in configs.done.items()
        }

    def _copies(self, option: Config) -> bool:
        if option.is_sensitive or option.is_read_only or option.value is None:
            return False
        is_set = option.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        return (is_set or self.flow.config["use.defaults.from"] == "source") and self._options.takes(
            option.name
        )

    def _sync_options(self, names: Sequence[str]) -> None:
        """Sets what differs, and takes back what the source does not set any more."""
        wanted = self._wanted(names)
        copies = {name: ConfigResource(ConfigKind.TOPIC, self._remote(name)) for name in wanted}
        try:
            present = self.target.configs.describe(copies.values()).done
            changes = {}
            for name, options in wanted.items():
                rows = present.get(copies[name])
                if rows is not None:
                    changed = list(self._changes(options, rows))
                    if changed:
                        changes[copies[name]] = changed
            results = self.target.configs.alter(changes) if changes else None
        except ClientError as error:
            raise RetriableError(f"options of topics of {self.flow.target} cannot be set: {error}") from error
        for resource, refusal in (results.failed if results is not None else {}).items():
            log.warning("options cannot be set", extra={"topic": resource.name, "reason": str(refusal)})

    def _changes(
        self, wanted: Mapping[str, str | None], present: Mapping[str, Config]
    ) -> Sequence[ConfigChange]:
        changes = [
            ConfigChange(name, ChangeKind.SET, value)
            for name, value in wanted.items()
            if name in present and present[name].value != value
        ]
        changes += [
            ConfigChange(name, ChangeKind.DELETE)
            for name, row in present.items()
            if row.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
            and name not in wanted
            and self._options.takes(name)
        ]
        return changes

    # --- access rules ---------------------------------------------------------------------------------

    def _sync_rules(self, chosen: Mapping[str, Topic]) -> None:
        try:
            rules = self.source.acls.list(AclFilter(ResourceType.TOPIC))
        except ClientError as error:
            # Most clusters have no authorizer, and not everybody may read rules.
            log.debug("access rules cannot be read", extra={"flow": self._name, "reason": str(error)})
            return
        wanted = [wanted_rule for rule in rules if (wanted_rule := self._rule(rule, chosen)) is not None]
        if not wanted:
            return
        try:
            there = set(self.target.acls.list(AclFilter(ResourceType.TOPIC)))
            failed = self.target.acls.create([rule for rule in wanted if rule not in there]).failed
        except ResourceError as error:
            log.warning("access rules cannot be written", extra={"flow": self._name, "reason": str(error)})
            return
        except ClientError as error:
            raise RetriableError(f"access rules of {self.flow.target} cannot be set: {error}") from error
        for rule, refusal in failed.items():
            log.warning("access rule not copied", extra={"rule": str(rule), "reason": str(refusal)})

    def _rule(self, rule: AclRule, chosen: Mapping[str, Topic]) -> AclRule | None:
        """A rule as the target is to have it: permissions to write are not copied."""
        if rule.pattern != Pattern.LITERAL or rule.name not in chosen:
            return None
        operation = rule.operation
        if rule.permission == Permission.ALLOW:
            if operation == Operation.WRITE:
                return None
            if operation == Operation.ALL:
                operation = Operation.READ
        return replace(rule, name=self._remote(rule.name), operation=operation)
