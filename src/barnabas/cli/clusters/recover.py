"""`barnabas recover`: restores the metadata of a broker when the file was lost or damaged."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.terminal.errors import EXIT_OK, CliError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json
from barnabas.terminal.runner import example, new_app

app = new_app("Restore the metadata of a broker when the file was lost or damaged.")


@app.command(
    epilog=example("barnabas recover /var/lib/barnabas", "barnabas recover /disk1/log /disk2/log --execute")
)
def recover(
    log_dirs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG_DIR...",
            help="All log dirs of one broker, as log.dirs names them.",
            show_default=False,
        ),
    ],
    apply: Annotated[
        bool, typer.Option("--execute", "--apply", help="Do it; without this, only say what would be done.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Restore even if the file is intact.")] = False,
    json: AsJson = False,
) -> int:
    """Restore znodes.sqlite from its copy in the log dirs, or from the partitions' folders. The broker must not run."""
    from barnabas.broker.cluster import restoring
    from barnabas.broker.cluster.trees import TREE_FILE
    from barnabas.coordination.tree import TreeError

    for log_dir in log_dirs:
        if not log_dir.is_dir():
            raise CliError(f"{log_dir} is not a folder; name the broker's log dirs (log.dirs)")
    try:
        with restoring.locked(log_dirs):
            if not force and restoring.is_whole(log_dirs[0] / TREE_FILE):
                raise CliError(
                    f"{log_dirs[0] / TREE_FILE} is whole, nothing needs to be restored; --force restores it all the same"
                )
            done = asyncio.run(restoring.restore(log_dirs, time.time_ns() // 1_000_000, apply=apply))
    except (restoring.CannotRestore, TreeError, OSError) as error:
        raise CliError(str(error)) from error
    if json:
        print_json(_shown(done, applied=apply))
    else:
        _say(done, applied=apply)
    return EXIT_OK


def _shown(done: Any, *, applied: bool) -> dict[str, Any]:
    return {
        "tree": str(done.tree),
        "from": None if done.base is None else str(done.base),
        "topics": done.topics,
        "added": done.added,
        "left_out": done.left_out,
        "set_aside": [str(path) for path in done.damaged],
        "applied": applied,
    }


def _say(done: Any, *, applied: bool) -> None:
    source = "the partitions' folders alone" if done.base is None else f"the copy {done.base}"
    count = f"{done.topics} topic{'' if done.topics == 1 else 's'}"
    print(f"{done.tree}: {'restored' if applied else 'can be restored'} from {source}, {count}")
    if done.base is None:
        print("lost, because there was no copy: options of topics, brokers and groups, and quotas")
    elif done.added:
        print(f"not in the copy, found in the log dirs: {', '.join(done.added)}")
    if done.left_out:
        print(f"in the copy, but nowhere in the log dirs, and so left out: {', '.join(done.left_out)}")
    for path in done.damaged:
        print(f"set aside: {path}")
    print("start the broker now" if applied else "--execute does it")
