"""mm2.properties: the flows between clusters that one file describes, each as a worker of the target with three connectors.

Source: Kafka's MirrorMakerConfig, MirrorMaker.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.connect.errors import OptionError
from barnabas.connect.mirror import options
from barnabas.connect.mirror.flow import SERVERS
from barnabas.connect.mirror.options import BYTES, PACKAGE
from barnabas.connect.worker.common import EVERY, SOURCES
from barnabas.connect.worker.settings import OPTIONS, WorkerOptions

COPYING: Final = "MirrorSourceConnector"
CONNECTORS: Final = (COPYING, "MirrorHeartbeatConnector", "MirrorCheckpointConnector")
KINDS: Final = ("producer", "consumer", "admin")
CLIENT: Final = ("security.protocol", "sasl.", "ssl.", "client.id", SERVERS, "request.timeout.ms")
"""Properties of clients that may be given for all clusters at once."""
OF_WORKERS: Final = (
    "offset.storage.", "config.storage.", "status.storage.", "key.converter", "value.converter", "header.converter",
    "topic.creation.", "config.providers", "listeners", "rest.", "plugin.",
)  # fmt: skip
OF_CONNECTORS: Final = (
    "replication.policy.",
    "transforms",
    "predicates",
    "errors.",
    "topic.creation.",
    "topic.filter.",
)
OF_CONTENT: Final = (
    "key.converter", "value.converter", "header.converter", "source.key.converter", "source.value.converter", "transforms",
    "predicates",
)  # fmt: skip
"""What only concerns the records of topics: checkpoints and heartbeats stay as Kafka has them."""
IGNORED: Final = ("dedicated.mode.enable.internal.rest", "clusters", "metric.reporters", "metrics.")
EXACTLY_ONCE: Final = "exactly.once.source.support"
DECLARED: Final = {
    row.name
    for rows in (options.SOURCE, options.CHECKPOINT, options.HEARTBEAT, EVERY.options, SOURCES.options)
    for row in rows
}


@dataclass(frozen=True, slots=True)
class MirrorFlow:
    """One direction. enabled: whether topics are copied; otherwise there are only heartbeats. worker: its options."""

    source: str
    target: str
    enabled: bool
    worker: WorkerOptions

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class MirrorMakerFile:
    """The properties of a file. Raises OptionError when it is made from what names no clusters."""

    texts: Mapping[str, str]

    @property
    def clusters(self) -> list[str]:
        """The aliases."""
        return [part.strip() for part in self.texts.get("clusters", "").split(",") if part.strip()]

    def flows(self, near: Sequence[str] = ()) -> list[MirrorFlow]:
        """The flows that run here. near: only those into these clusters. Raises OptionError."""
        clusters = self.clusters
        if len(clusters) < 2:
            raise OptionError("clusters names fewer than two clusters: clusters = A, B", "clusters")
        for alias in clusters:
            if not self.texts.get(f"{alias}.{SERVERS}", "").strip():
                raise OptionError(f"{alias}.{SERVERS} is not set: name the brokers of cluster {alias}")
        for alias in near:
            if alias not in clusters:
                raise OptionError(f"--clusters {alias}: the file's clusters are {', '.join(clusters)}")
        self._require_pairs(clusters)
        flows = [
            self._flow(source, target)
            for source in clusters
            for target in clusters
            if source != target and (not near or target in near) and self._runs(source, target)
        ]
        if not any(self._flag(source, target, "enabled", False) for source, target in self._pairs()):
            raise OptionError(
                f"no flow is enabled: set {clusters[0]}->{clusters[1]}.enabled = true, or another one"
            )
        return flows

    def _pairs(self) -> Iterator[tuple[str, str]]:
        clusters = self.clusters
        yield from ((source, target) for source in clusters for target in clusters if source != target)

    def _flag(self, source: str, target: str, name: str, default: bool) -> bool:
        text = self.texts.get(f"{source}->{target}.{name}")
        return default if text is None else text.strip().lower() == "true"

    def _runs(self, source: str, target: str) -> bool:
        """Whether a flow copies, or has heartbeats: those that A->B copies are written to A by B->A."""
        beats = self.texts.get("emit.heartbeats.enabled", "true").strip().lower() == "true"
        enabled = self._flag(source, target, "enabled", False)
        return enabled or self._flag(source, target, "emit.heartbeats.enabled", beats)

    def _require_pairs(self, clusters: Sequence[str]) -> None:
        """Raises OptionError for a misspelt alias."""
        pairs = tuple(f"{source}->{target}." for source, target in self._pairs())
        for name in self.texts:
            if "->" in name and not name.startswith(pairs):
                raise OptionError(
                    f"{name}: there is no such pair of the clusters {', '.join(clusters)}", name
                )

    def unknown(self) -> list[str]:
        """What has no meaning here, a line for each: misspelt, or for Java alone."""
        pairs = [f"{source}->{target}." for source, target in self._pairs()]
        workers = {row.name for row in OPTIONS.options}
        prefixes = (
            *(f"{alias}." for alias in self.clusters),
            *OF_WORKERS,
            *OF_CONNECTORS,
            *OF_CONTENT,
            *CLIENT,
            *IGNORED,
        )
        prefixes += (*_of_kinds(), "source.", "target.")
        complaints = []
        for name in self.texts:
            option = name
            for pair in pairs:
                option = option.removeprefix(pair)
            if option in DECLARED or option in workers or option.startswith(prefixes):
                continue
            near = difflib.get_close_matches(option, sorted(DECLARED | workers), 1)
            hint = f"; did you mean {name.removesuffix(option)}{near[0]}?" if near else ""
            complaints.append(f"{name} is no option of MirrorMaker, and changes nothing{hint}")
        return complaints

    # --- one flow -------------------------------------------------------------------------------------

    def _flow(self, source: str, target: str) -> MirrorFlow:
        enabled = self._flag(source, target, "enabled", False)
        first = {name: self._connector(name, source, target) for name in CONNECTORS}
        return MirrorFlow(source, target, enabled, self._worker(source, target, first))

    def _cluster(self, alias: str) -> dict[str, str]:
        """The properties of a cluster, without its prefix; those for all clusters where it has none."""
        own = self._stripped(f"{alias}.")
        common = {name: text for name, text in self.texts.items() if name.startswith((*CLIENT, *_of_kinds()))}
        return {**common, **own}

    def _stripped(self, prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): text.strip()
            for name, text in self.texts.items()
            if name.startswith(prefix)
        }

    def _worker(self, source: str, target: str, first: Mapping[str, Mapping[str, str]]) -> WorkerOptions:
        cluster = self._cluster(target)
        texts = {
            "group.id": f"{source}-mm2",
            "config.storage.topic": f"mm2-configs.{source}.internal",
            "offset.storage.topic": f"mm2-offsets.{source}.internal",
            "status.storage.topic": f"mm2-status.{source}.internal",
            "key.converter": BYTES,
            "value.converter": BYTES,
            "header.converter": BYTES,
            # As in Kafka: without this, records are copied at least once.
            EXACTLY_ONCE: "disabled",
        }
        workers = {row.name for row in OPTIONS.options}
        pair = self._stripped(f"{source}->{target}.")
        for texts_of_part in (self.texts, cluster, pair):
            texts |= {
                name: text.strip()
                for name, text in texts_of_part.items()
                if name in workers or name.startswith((*OF_WORKERS, "producer.", "consumer."))
            }
        client = {name: text for name, text in cluster.items() if name.startswith(CLIENT)}
        client.setdefault("client.id", f"{source}->{target}")
        return WorkerOptions.of(client, texts, first=first)

    def _connector(self, name: str, source: str, target: str) -> dict[str, str]:
        config = {
            option: text.strip()
            for option, text in self.texts.items()
            if option in DECLARED or option.startswith(OF_CONNECTORS)
        }
        for side, alias in (("source", source), ("target", target)):
            for option, text in self._cluster(alias).items():
                prefix = f"{side}." if option.startswith(_of_kinds()) else f"{side}.cluster."
                config[f"{prefix}{option}"] = text
        config |= {
            "name": name,
            "connector.class": f"{PACKAGE}.{name}",
            "source.cluster.alias": source,
            "target.cluster.alias": target,
        }
        config |= self._stripped(f"{source}->{target}.")
        config.setdefault("enabled", "false")
        if name == COPYING:
            config |= {
                option: text.strip() for option, text in self.texts.items() if option.startswith(OF_CONTENT)
            }
            return config | {
                option: text
                for option, text in self._stripped(f"{source}->{target}.").items()
                if option.startswith(OF_CONTENT)
            }
        return {option: text for option, text in config.items() if not option.startswith(OF_CONTENT)}


def _of_kinds() -> tuple[str, ...]:
    return tuple(f"{kind}." for kind in KINDS)
