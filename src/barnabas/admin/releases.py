"""Kafka's releases by their levels of metadata.version."""

from __future__ import annotations

from typing import Final

METADATA: Final = "metadata.version"
RELEASES: Final = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0",
    "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
)  # fmt: skip
"""The first one, 3.3-IV3, is level 7, the first that KRaft takes; each name stands for the next level."""
LEVELS: Final = {release: level for level, release in enumerate(RELEASES, 7)}
NAMES: Final = {level: release for release, level in LEVELS.items()}
