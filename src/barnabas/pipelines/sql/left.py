"""What push queries leave: their pipeline's folder and their topics."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.admin import Admin

log = logging.getLogger(__name__)

PREFIX: Final = "transient_"
"""What the ids of push queries begin with."""
TOPIC: Final = "barnabas-sql-"
"""What the name of the topic for their rows begins with; the id follows."""


def remove_left(folder: Path, client: Mapping[str, str]) -> None:
    """Removes the push queries of a server that was killed, before their pipelines would start again. folder: of the
    server's pipelines."""
    ids = [path.name.partition(".")[0] for path in folder.glob(f"{PREFIX}*") if path.is_dir()]
    for path in list(folder.glob(f"{PREFIX}*")):
        shutil.rmtree(path, ignore_errors=True)
    if ids:
        delete_topics(client, ids)


def delete_topics(client: Mapping[str, str], ids: Iterable[str]) -> None:
    """Deletes the topics of push queries; if that fails, they stay, and the log says so."""
    wanted = [name for one in ids for name in (TOPIC + one, f"{one}-errors")]
    try:
        with Admin(client) as admin:
            there = admin.topics.list()
            admin.topics.delete([name for name in wanted if name in there])
    except Exception as error:
        log.warning("topics of a query are left", extra={"topics": wanted, "reason": str(error)})
