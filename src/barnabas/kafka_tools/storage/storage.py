"""kafka-storage: marks log dirs as those of a node before its first start.

A broker of Barnabas does this by itself at its first start; formatting before that lets you choose the cluster id,
and makes scripts work that were written for Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.cluster.features import LATEST, MAPPING_CHOICES, print_mapping, release_levels
from barnabas.kafka_tools.shared.common import ToolError, parse, read_properties
from barnabas.kafka_tools.shared.parser import Opt, Parsed, Tool
from barnabas.kafka_tools.shared.subcommands import need, subcommand
from barnabas.kafka_tools.storage import scram as storage_scram
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.uuids import uuid_text

PROGRAM: Final = "kafka-storage"
DEFAULT_DIR: Final = "/tmp/kafka-logs"
CHOICES: Final = {
    "info": "--config CONFIG",
    "format": "--config CONFIG --cluster-id CLUSTER_ID [--ignore-formatted] [--release-version RELEASE] "
    "[--feature FEATURE=LEVEL] [--standalone | --no-initial-controllers | --initial-controllers LIST] "
    "[--add-scram CREDENTIAL]",
    **MAPPING_CHOICES,
    "random-uuid": "",
}
TOOL: Final = Tool(
    f"The Kafka storage tool.\nCommands: {', '.join(CHOICES)}",
    (
        Opt("config", "The configuration file.", "CONFIG", aliases=("c",)),
        Opt("cluster-id", "The cluster id.", "CLUSTER_ID", aliases=("t",)),
        Opt("ignore-formatted", "Leave alone what is formatted already.", aliases=("g",)),
        Opt("release-version", "The release whose features to set.", "RELEASE", aliases=("r",)),
        Opt("feature", "A feature with its level.", "FEATURE=LEVEL", aliases=("f",)),
        Opt("standalone", "Of KRaft controllers; means nothing here.", aliases=("s",)),
        Opt("no-initial-controllers", "Of KRaft controllers; means nothing here.", aliases=("N",)),
        Opt("initial-controllers", "Of KRaft controllers; means nothing here.", "LIST", aliases=("I",)),
        Opt("add-scram", "A credential to begin with.", "CREDENTIAL", aliases=("S",)),
        Opt("help", "Print usage information.", aliases=("h",)),
        Opt("version", "Display the version."),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    parsed = parse(TOOL, arguments)
    command = subcommand(PROGRAM, CHOICES, parsed)
    if command == "random-uuid":
        print(uuid_text(uuid.uuid4()))
        return EXIT_OK
    if command in MAPPING_CHOICES:
        return print_mapping(command, parsed, PROGRAM)
    need(PROGRAM, parsed, "config")
    properties = read_properties(parsed.text("config"))
    if command == "info":
        return info(log_dirs(properties))
    need(PROGRAM, parsed, "cluster-id")
    return format_dirs(parsed, properties)


def log_dirs(properties: dict[str, str]) -> list[str]:
    """The log dirs of a configuration, in order of their names."""
    text = properties.get("log.dirs") or properties.get("log.dir") or DEFAULT_DIR
    extra = properties.get("metadata.log.dir", "")
    return sorted({name.strip() for name in [*text.split(","), extra] if name.strip()})


def info(names: Sequence[str]) -> int:
    """Print the dirs and the nodes that they belong to; the exit code, which is 1 if there are problems."""
    from barnabas.storage import checkpoints
    from barnabas.storage.errors import CorruptCheckpoint

    formatted, metas, problems = [], [], []
    for name in names:
        if not Path(name).is_dir():
            problems.append(f"{name} {'is not a directory' if Path(name).exists() else 'does not exist'}")
            continue
        formatted.append(name)
        try:
            meta = checkpoints.read_meta(name)
        except CorruptCheckpoint as error:
            problems.append(f"{name}: {error}")
            continue
        if meta is None:
            problems.append(f"{name} is not formatted.")
        else:
            metas.append(meta)
    if formatted:
        print("Found log directories:")
        print("".join(f"  {name}\n" for name in formatted))
    if metas:
        meta = metas[-1]
        directory = uuid_text(meta.directory_id) if meta.directory_id else ""
        print(
            f"Found metadata: {{cluster.id={meta.cluster_id}, directory.id={directory}, node.id={meta.node_id}, "
            "version=1}\n"
        )
    if problems:
        print("Found problems:")
        print("".join(f"  {problem}\n" for problem in problems))
    return EXIT_FAILED if problems else EXIT_OK


def format_dirs(parsed: Parsed, properties: dict[str, str]) -> int:
    """Write meta.properties into each dir; the exit code. Raises ToolError."""
    from barnabas.storage import checkpoints
    from barnabas.storage.checkpoints import MetaProperties

    release = parsed.text("release-version", LATEST)
    release_levels(release)
    node = properties.get("node.id") or properties.get("broker.id") or "-1"
    if not node.lstrip("-").isdigit() or int(node) < 0:
        raise ToolError(f"node.id must be a number from 0 up in {parsed.text('config')}, not {node!r}")
    users = storage_scram.parse_credentials(parsed.all("add-scram"))
    cluster = check_cluster_id(parsed.text("cluster-id"))
    names = log_dirs(properties)
    fresh = []
    for name in names:
        meta = checkpoints.read_meta(name)
        if meta is None:
            fresh.append(name)
        elif meta.cluster_id not in (None, cluster):
            raise ToolError(
                f"Invalid cluster.id in: {name}/meta.properties. Expected {cluster}, but read {meta.cluster_id}"
            )
        elif "ignore-formatted" not in parsed:
            raise ToolError(
                f"Log directory {name} is already formatted. Use --ignore-formatted to ignore this directory and "
                "format the others."
            )
    if not fresh:
        print("All of the log directories are already formatted.")
    for name in fresh:
        kind = "metadata" if name == (properties.get("metadata.log.dir") or names[0]) else "data"
        print(f"Formatting {kind} directory {name} with metadata.version {release}.")
        Path(name).mkdir(mode=0o700, parents=True, exist_ok=True)
        checkpoints.write_meta(name, MetaProperties(cluster, int(node), uuid.uuid4()))
    if users and fresh:
        storage_scram.write(Path(fresh[0]), users)
    return EXIT_OK


def check_cluster_id(text: str) -> str:
    """A cluster id as it was given. Raises ToolError for an empty one."""
    if not text.strip():
        raise ToolError("The cluster id is empty; `kafka-storage random-uuid` makes one")
    return text.strip()
