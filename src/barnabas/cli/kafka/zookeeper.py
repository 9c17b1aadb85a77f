"""zookeeper-server-start, zookeeper-server-stop and zkServer.sh: what a book's session types before it starts a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from barnabas.cli.errors import EXIT_OK

TEXT: Final = """\
{name}: one broker needs no ZooKeeper: it keeps the cluster's metadata itself. Go on with the next step, for example
  kafka-server-start config/server.properties
For a cluster of brokers, run the ZooKeeper that you have and name it in zookeeper.connect (docs/administration.md).
"""


def script() -> None:
    """Entry point. Exit code 0: a session that was typed from a book goes on."""
    print(TEXT.format(name=Path(sys.argv[0]).name), end="")
    sys.exit(EXIT_OK)
