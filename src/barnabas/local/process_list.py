"""The brokers and other processes of this user on this machine, found by their command lines."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from barnabas.config.properties import parse_properties

DEFAULT_NODE: Final = "1"


def processes() -> Iterator[tuple[int, list[str]]]:
    """This user's processes with their command lines, without those in other containers: their brokers have other
    networks and files."""
    listed = subprocess.run(
        ["ps", "-ww", "-U", str(os.getuid()), "-o", "pid=,args="], capture_output=True, text=True, check=False
    ).stdout
    for line in listed.splitlines():
        pid, _, rest = line.strip().partition(" ")
        try:
            words = shlex.split(rest)
        except ValueError:
            words = rest.split()
        if pid.isdigit() and int(pid) != os.getpid() and _is_here(int(pid)):
            yield int(pid), words


def _is_here(pid: int) -> bool:
    """Whether a process has the network and the files of this one; true where the system does not say."""
    try:
        return all(
            os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
            for kind in ("net", "mnt")
        )
    except OSError:
        return True


def is_broker(words: Sequence[str]) -> bool:
    """Whether a command line is that of a broker, started by either of its names."""
    names = [Path(word).name.removesuffix(".sh") for word in words[:4]]
    if names and names[0].startswith("python"):
        names = names[2:] if names[1:2] == ["-m"] else names[1:]
    return names[:1] == ["kafka-server-start"] or names[:2] == ["barnabas", "start"]


def node_of(words: Sequence[str]) -> str:
    """The node id that a broker's command line, or the file it names, gives it."""
    node_id = DEFAULT_NODE
    for at, word in enumerate(words):
        if word.endswith(".properties"):
            try:
                properties = {
                    item.name: item.value for item in parse_properties(Path(word).read_text("utf-8"))
                }
            except (OSError, ValueError):
                continue
            node_id = properties.get("node.id") or properties.get("broker.id") or node_id
        name, _, value = word.partition("=")
        if name in ("node.id", "broker.id") and at and words[at - 1] in ("-o", "--override"):
            node_id = value
    return node_id
