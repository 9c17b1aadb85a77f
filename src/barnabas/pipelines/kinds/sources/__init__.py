"""The kinds of sources that pipelines read, by name, see base.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.pipelines.kinds.sources.base import Reading, SourceKind
from barnabas.pipelines.kinds.sources.files import FILES
from barnabas.pipelines.kinds.sources.topics import TABLE, TOPIC

__all__ = ["SOURCES", "Reading", "SourceKind"]

SOURCES: Final[Mapping[str, SourceKind]] = {kind.name: kind for kind in (TOPIC, TABLE, FILES)}
