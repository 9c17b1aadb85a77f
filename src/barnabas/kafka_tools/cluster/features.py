"""kafka-features, and what kafka-storage shares with it: feature levels by release."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.admin import Admin, UpgradeKind
from barnabas.admin.releases import LEVELS, METADATA, NAMES, RELEASES
from barnabas.kafka_tools.shared.common import ToolError, connect, parse, say, text_of
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.kafka_tools.shared.subcommands import need, subcommand
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

PROGRAM: Final = "kafka-features"
LATEST: Final = "4.1-IV1"
# Which level a release sets: the highest whose own first release is not later.
FEATURES: Final[Mapping[str, Sequence[tuple[int, str]]]] = {
    "kraft.version": ((1, "3.9-IV0"),),
    "transaction.version": ((2, "4.0-IV2"),),
    "group.version": ((1, "4.0-IV0"),),
    "eligible.leader.replicas.version": ((1, "4.1-IV0"),),
    "share.version": ((1, "4.2-IV0"),),
    "streams.version": ((1, "4.2-IV1"),),
}
HIGHEST: Final = {"transaction.version": 2, "kraft.version": 1, "group.version": 1, "share.version": 1,
                  "eligible.leader.replicas.version": 1, "streams.version": 1}  # fmt: skip
NEEDS: Final = {("eligible.leader.replicas.version", 1): f"{METADATA}=23 (4.0-IV1)"}
MAPPING_CHOICES: Final = {
    "version-mapping": "[--release-version RELEASE]",
    "feature-dependencies": "--feature FEATURE=LEVEL",
}
CHOICES: Final = {
    "describe": "",
    "upgrade": "[--release-version RELEASE] [--feature FEATURE=LEVEL] [--dry-run]",
    "downgrade": "[--release-version RELEASE] [--feature FEATURE=LEVEL] [--unsafe] [--dry-run]",
    "disable": "--feature FEATURE [--unsafe] [--dry-run]",
    **MAPPING_CHOICES,
}
TOOL: Final = Tool(
    f"This tool manages feature flags in Kafka.\nCommands: {', '.join(CHOICES)}",
    (
        *COMMON,
        Opt("bootstrap-controller", "Of KRaft controllers.", "String: controller", old=True),
        Opt("release-version", "All features as that release has them.", "String: release"),
        Opt("metadata", "The level of metadata.version, as a release.", "String: release", old=True),
        Opt(
            "feature",
            "A feature with its level: group.version=1; to disable its name alone.",
            "String: feature",
        ),
        Opt("unsafe", "Even if metadata may be lost."),
        Opt("dry-run", "Validate, but change nothing."),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    parsed = parse(TOOL, arguments)
    command = subcommand(PROGRAM, CHOICES, parsed)
    if command in MAPPING_CHOICES:
        return print_mapping(command, parsed, PROGRAM)
    if "bootstrap-controller" in parsed:
        parsed.values.setdefault("bootstrap-server", parsed.all("bootstrap-controller"))
    admin = connect(parsed)
    if command == "describe":
        describe(admin)
        return EXIT_OK
    return update(admin, parsed, command)


def describe(admin: Admin) -> None:
    """The levels that the brokers support and those in force."""
    answer = admin.cluster.features()
    epoch = "-" if answer.epoch is None else answer.epoch
    for row in answer.features.values():
        low, high, level = (
            level_text(row.name, value) for value in (row.level_min, row.level_max, row.level)
        )
        print(
            f"Feature: {row.name}\tSupportedMinVersion: {low}\tSupportedMaxVersion: {high}\t"
            f"FinalizedVersionLevel: {level}\tEpoch: {epoch}"
        )


def level_text(feature: str, level: int) -> str:
    """A level as text; for metadata.version the name of its release."""
    return NAMES.get(level, f"UNKNOWN [{level}]") if feature == METADATA else str(level)


def update(admin: Admin, parsed: Parsed, command: str) -> int:
    """Change levels; the exit code. Raises Refused."""
    wanted = wanted_levels(parsed, command)
    lower = UpgradeKind.UNSAFE_DOWNGRADE if "unsafe" in parsed else UpgradeKind.SAFE_DOWNGRADE
    kind = UpgradeKind.UPGRADE if command == "upgrade" else lower
    results = admin.cluster.update_features(wanted, kind=kind, validate_only="dry-run" in parsed)
    failures = {name: text_of(error) for name, error in results.failed.items()}
    for name, level in wanted.items():
        if name in failures:
            what = name if command == "disable" else f"{name} to {level}"
            say(f"{'Can' if 'dry-run' in parsed else 'Could'} not {command} {what}. {failures[name]}")
        else:
            done = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}[command]
            how = f"can be {done}" if "dry-run" in parsed else f"was {done}"
            print(f"{name} {how}{'' if command == 'disable' else f' to {level}'}.")
    if failures:
        print(f"{len(failures)} out of {len(wanted)} operation(s) failed.", file=sys.stderr)
    return EXIT_FAILED if failures else EXIT_OK


def wanted_levels(parsed: Parsed, command: str) -> dict[str, int]:
    """The level of each feature that the options name. Raises Refused."""
    if command == "disable":
        need(PROGRAM, parsed, "feature")
        return dict.fromkeys(parsed.all("feature"), 0)
    release = parsed.get("release-version") or parsed.get("metadata")
    if release is not None:
        levels = release_levels(release)
        if "metadata" in parsed:
            return {METADATA: levels[METADATA]}
        return {name: level for name, level in levels.items() if level or command == "downgrade"}
    if "feature" not in parsed:
        raise Refused(
            "You must specify at least one feature to upgrade" if command == "upgrade" else
            "You must specify at least one feature to downgrade", False,
        )  # fmt: skip
    return dict(parse_feature(item) for item in parsed.all("feature"))


def parse_feature(text: str) -> tuple[str, int]:
    """`group.version=1`. Raises Refused."""
    name, equals, level = text.partition("=")
    if not equals:
        raise Refused(f"Can't parse feature=level string {text}: equals sign not found.", False)
    if not level.strip().isdigit():
        raise Refused(f"Can't parse feature=level string {text}: unable to parse {level} as a short.", False)
    return name.strip(), int(level)


def release_levels(release: str) -> dict[str, int]:
    """Every feature's level in a release; `4.0` is the last of 4.0. Raises Refused."""
    known = [name for name in RELEASES if name == release or name.startswith(f"{release}-")]
    if not known:
        raise Refused(
            f"Unknown release version '{release}'. Supported versions are: {RELEASES[0]} to {RELEASES[-1]}",
            False,
        )
    level = LEVELS[known[-1]]
    levels = {METADATA: level}
    for name, steps in FEATURES.items():
        levels[name] = max((value for value, first in steps if LEVELS[first] <= level), default=0)
    return levels


def print_mapping(command: str, parsed: Parsed, program: str) -> int:
    """version-mapping and feature-dependencies, which ask no broker; the exit code. Raises Refused, ToolError."""
    if command == "version-mapping":
        for name, level in release_levels(parsed.text("release-version", LATEST)).items():
            print(f"{name}={level}" + (f" ({NAMES[level]})" if name == METADATA else ""))
        return EXIT_OK
    need(program, parsed, "feature")
    for item in parsed.all("feature"):
        name, level = parse_feature(item)
        if name != METADATA and name not in HIGHEST:
            raise ToolError(f"Unknown feature: {name}")
        if level > HIGHEST.get(name, LEVELS[RELEASES[-1]]):
            raise ToolError(f"Feature level {level} of {name} is not known")
        shown = f"{item} ({NAMES[level]})" if name == METADATA and level in NAMES else item
        if (name, level) in NEEDS:
            print(f"{shown} requires:\n    {NEEDS[name, level]}")
        else:
            print(f"{shown} has no dependencies.")
    return EXIT_OK
