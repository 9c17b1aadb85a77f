"""What `barnabas debug bundle` collects. Each part is collected by itself, so that a missing part does not affect the
others.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas import __version__
from barnabas.cli.debugging.bundle_cluster import CLUSTER_PARTS
from barnabas.client.errors import BrokerUnavailable
from barnabas.local.brokers import LocalBroker, brokers_here
from barnabas.local.process_facts import log_dirs_of, log_file_of, open_files, stacks_of
from barnabas.terminal.administering import administer
from barnabas.terminal.connection import target
from barnabas.terminal.errors import CliError
from barnabas.terminal.redaction import text_without_secrets, without_secrets, words_without_secrets

REQUEST_TIMEOUT_MS: Final = 5000
LOG_TAIL_BYTES: Final = 4 << 20
SMALL_FILE_BYTES: Final = 1 << 20
FILES_LISTED_MAX: Final = 200_000
PROC_FILES: Final = ("status", "limits", "io", "stat", "schedstat", "wchan")
CHECKPOINTS: Final = (
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


@dataclass(slots=True)
class Bundle:
    """The files of a bundle by name, and a list of what is missing."""

    parts: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def take(self, name: str, get: Callable[[], Any], *, go_on: bool = True) -> None:
        """Add one file: text as it is, anything else as JSON. A failure is noted. go_on: False raises
        BrokerUnavailable, since a broker that did not answer will not answer the next request either.
        """
        try:
            content = get()
        except Exception as error:
            if isinstance(error, BrokerUnavailable) and not go_on:
                raise
            text = str(error) if isinstance(error, CliError) else f"{type(error).__name__}: {error}"
            self.missing.append(f"{name}: {' '.join(text.split())}")
            return
        if isinstance(content, bytes):
            self.parts[name] = content
        elif isinstance(content, str):
            self.parts[name] = content.encode("utf-8", "replace")
        else:
            self.parts[name] = json.dumps(content, indent=2, ensure_ascii=False, default=str).encode()

    def collect(
        self, bootstrap: str | None, properties: list[str] | None, data: list[Path], log_files: list[Path]
    ) -> None:
        """Collect everything that is available."""
        self.take("versions.json", versions)
        self.take("machine.json", machine)
        self.take("client.json", lambda: client(bootstrap, properties))
        self._take_cluster(bootstrap, properties)
        dirs, logs = dict.fromkeys(data), dict.fromkeys(log_files)
        brokers = brokers_here()
        if not brokers:
            self.missing.append(
                "process and stacks: no broker of this user runs on this machine"
                + ("" if data else "; --data DIR takes what is known of its folders, --log-file FILE its log")
            )
        for broker in brokers:
            self._take_process(broker)
            words = broker.command.split()
            dirs |= dict.fromkeys(log_dirs_of(broker.pid, words))
            log_file = log_file_of(broker.pid, words)
            if log_file is None:
                self.missing.append(
                    f"log of process {broker.pid}: it goes to no file (a terminal, a pipe, journald); with systemd, "
                    "`journalctl -u barnabas -n 10000 > log.txt` and send that too"
                )
            else:
                logs[log_file] = None
        for i, path in enumerate(logs):
            self.take(f"log/{i}-{path.name}", lambda path=path: tail(path))  # type: ignore[misc]
        for i, path in enumerate(dirs):
            self._take_log_dir(f"data/{i}", path)

    def _take_cluster(self, bootstrap: str | None, properties: list[str] | None) -> None:
        patience = [f"request.timeout.ms={REQUEST_TIMEOUT_MS}", f"delivery.timeout.ms={REQUEST_TIMEOUT_MS}"]
        try:
            with administer(bootstrap, [*patience, *(properties or [])]) as admin:
                for name, get in CLUSTER_PARTS.items():
                    self.take(f"cluster/{name}.json", lambda get=get: get(admin), go_on=False)  # type: ignore[misc]
        except CliError as error:
            self.missing.append(f"cluster: {error}")

    def _take_process(self, broker: LocalBroker) -> None:
        folder = f"process/{broker.pid}"
        words = broker.command.split()
        self.take(f"{folder}/command.json", lambda: words_without_secrets(words))
        self.take(f"{folder}/stacks.txt", lambda: stacks_of(broker.pid))
        self.take(f"{folder}/proc.txt", lambda: proc(broker.pid))
        for word in words:
            if word.endswith(".properties"):
                path = Path(word)
                with contextlib.suppress(OSError):
                    path = Path(os.readlink(f"/proc/{broker.pid}/cwd")) / word
                self.take(f"{folder}/{path.name}", lambda path=path: text_without_secrets(small(path)))  # type: ignore[misc]

    def _take_log_dir(self, folder: str, path: Path) -> None:
        self.take(f"{folder}/files.txt", lambda: listing(path))
        for name in CHECKPOINTS:
            if (path / name).exists():
                self.take(f"{folder}/{name}", lambda name=name: small(path / name))  # type: ignore[misc]

    def write(self, target_file: Path) -> int:
        """Write the zip file completely or not at all; its size in bytes. Raises OSError."""
        beside = target_file.with_name(f"{target_file.name}.part")
        try:
            with zipfile.ZipFile(beside, "x", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("CONTENTS.txt", self.contents())
                for name, data in sorted(self.parts.items()):
                    archive.writestr(name, data)
            os.chmod(beside, 0o600)
            os.replace(beside, target_file)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        return target_file.stat().st_size

    def contents(self) -> str:
        """The page that says what is in the bundle."""
        lines = [
            f"barnabas {__version__}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
            "",
            "Holds",
            "",
        ]
        lines += [f"  {name}  {len(data):,} B" for name, data in sorted(self.parts.items())]
        lines += ["", "Missing", "", *(f"  {what}" for what in self.missing or ["nothing"])]
        return "\n".join(lines) + "\n"


def versions() -> dict[str, Any]:
    """The versions of Barnabas, Python and every package of the environment."""
    import ssl

    import confluent_kafka

    return {
        "barnabas": __version__,
        "python": sys.version,
        "executable": sys.executable,
        "openssl": ssl.OPENSSL_VERSION,
        "librdkafka": confluent_kafka.libversion()[0],
        "packages": dict(
            sorted(
                (distribution.metadata["Name"], distribution.version)
                for distribution in importlib.metadata.distributions()
            )
        ),
    }


def machine() -> dict[str, Any]:
    """The machine, and the environment variables that Barnabas, librdkafka, Java or Python use."""
    prefixes = ("BARNABAS", "KAFKA", "SPARK", "JAVA", "PYTHON", "LC_", "LANG", "TZ", "XDG_", "LOG_DIR")
    shown = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    return {
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "load": os.getloadavg(),
        "memory": memory(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "environment": without_secrets(shown),
    }


def memory() -> dict[str, str]:
    """The first lines of /proc/meminfo; empty elsewhere."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()[:8]
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def client(bootstrap: str | None, properties: list[str] | None) -> dict[str, Any]:
    """The cluster that -b, -X, the environment and the profile lead to."""
    where, options = target(bootstrap, properties)
    return {"bootstrap": where, "properties": without_secrets(options)}


def proc(pid: int) -> str:
    """What /proc says of a process; its open files by kind."""
    if not Path(f"/proc/{pid}").is_dir():
        raise CliError("this system has no /proc")
    parts = []
    for name in PROC_FILES:
        with contextlib.suppress(OSError):
            parts.append(f"--- {name}\n{Path(f'/proc/{pid}/{name}').read_text()}\n")
    files = open_files(pid)
    kinds: dict[str, int] = {}
    for path in files:
        kind = path.name.partition(":")[0] if ":" in path.name else path.suffix or "others"
        kinds[kind] = kinds.get(kind, 0) + 1
    parts.append(
        f"--- open files: {len(files)}\n" + "".join(f"{kind} {n}\n" for kind, n in sorted(kinds.items()))
    )
    return "\n".join(parts)


def tail(path: Path) -> bytes:
    """The end of a log, from the beginning of a line on. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - LOG_TAIL_BYTES, 0))
        data = file.read()
    return data if size <= LOG_TAIL_BYTES else data.partition(b"\n")[2]


def small(path: Path) -> str:
    """A file that is expected to be small. Raises OSError."""
    with path.open("rb") as file:
        return file.read(SMALL_FILE_BYTES).decode("utf-8", "replace")


def listing(path: Path) -> str:
    """Every file below a log dir with its size and time, and how full its disk is. Raises OSError."""
    usage = shutil.disk_usage(path)
    lines = [f"{path}: {usage.total:,} B in all, {usage.free:,} B free", ""]
    for folder, _, names in sorted(os.walk(path)):
        for name in sorted(names):
            if len(lines) > FILES_LISTED_MAX:
                return "\n".join([*lines, "... and more"]) + "\n"
            file = Path(folder, name)
            with contextlib.suppress(OSError):
                state = file.stat()
                when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(state.st_mtime))
                lines.append(f"{state.st_size:>14,}  {when}  {file.relative_to(path)}")
    return "\n".join(lines) + "\n"
