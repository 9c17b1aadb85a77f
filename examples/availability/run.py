"""What clients see, second by second, when a zone is lost or cut off.

    python examples/availability/run.py three-zones
    python examples/availability/run.py two-zones

A cluster over several zones on this machine, each zone with brokers, a ZooKeeper and a client, in a network of its own whose
links can be cut. The program ends with exit code 0 when nothing was lost that was acknowledged with acks=all, nothing
is stored twice, the side that was cut off acknowledged nothing with acks=all meanwhile, and the other side went on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from lesson import Lesson
from servers import SCENES, Cluster

from barnabas.testing.network import Network, NetworkError

INSIDE = "--inside"


def alone(words: list[str]) -> NoReturn:
    """Run this program again with a network, mounts and processes of its own, all of which end with it."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None or shutil.which("ip") is None:
        sys.exit(
            "this needs Linux with `unshare` and `nsenter` (package util-linux) and `ip` (package iproute2)"
        )
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        command += ["--user", "--map-root-user"]
    with subprocess.Popen([*command, sys.executable, __file__, INSIDE, *words]) as inside:
        signal.signal(signal.SIGTERM, lambda *_: inside.kill())  # everything inside ends with it
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the program inside
        sys.exit(inside.wait())


def prepare() -> None:
    """`ip netns` keeps its names in /run; here it is a private one."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def main() -> None:
    """Read the options and run the lesson."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("scene", choices=sorted(SCENES))
    options.add_argument(
        "--data", type=Path, help="folder of the cluster; a temporary one when it is not given"
    )
    options.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if not chosen.inside:
        alone(sys.argv[1:])
    try:
        prepare()
        with tempfile.TemporaryDirectory(prefix="availability-") as temporary:
            scene = SCENES[chosen.scene]
            with (
                Network(scene.zones) as network,
                Cluster((chosen.data or Path(temporary)).absolute(), network, scene) as cluster,
            ):
                faults = Lesson(cluster, network, scene).teach()
    except (NetworkError, subprocess.CalledProcessError) as error:
        sys.exit(f"the network of the lesson could not be made: {error}")
    for fault in faults:
        print(f"FAULT: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
