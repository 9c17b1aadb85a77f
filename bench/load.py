"""Builds and drives the two load generators (load.c, rdload.c)."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.brokers import CACHE, free_port
from bench.requests import BenchError, fetch_response, filled_batch

HERE = Path(__file__).parent
SAMPLE_TIMEOUT_S = 120


def build(source: str) -> Path:
    """Compile `source` (a file beside this one) once per content -> the program. Raises BenchError."""
    path = HERE / source
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    program = CACHE / "bin" / f"{path.stem}-{digest}"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchError("no C compiler `cc` on the PATH: the load generator cannot be built")
    program.parent.mkdir(parents=True, exist_ok=True)
    built = program.with_suffix(".new")
    done = subprocess.run(
        [compiler, "-O2", "-Wall", "-o", str(built), str(path), "-ldl"], capture_output=True, text=True
    )
    if done.returncode:
        raise BenchError(f"{source} does not compile: {done.stderr[-800:]}")
    built.rename(program)
    return program


def _answer(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SAMPLE_TIMEOUT_S)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        complaint = (done.stdout + done.stderr)[-400:]
        raise BenchError(f"the load generator ended with {done.returncode}: {complaint}") from None
    if "failed" in result:
        raise BenchError(result["failed"])
    if result.get("errors"):
        raise BenchError(f"{result['errors']} requests failed, first error code {result.get('first_error')}")
    return result


def run(
    port: int,
    keys: Mapping[str, float],
    *,
    produce: list[bytes] | None = None,
    fetch: list[bytes] | None = None,
) -> dict[str, Any]:
    """One run of load.c -> what it printed. A failed request raises BenchError: it is no throughput."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        command = [str(build("load.c")), "run", "127.0.0.1", str(port)]
        for name, templates in (("produce", produce), ("fetch", fetch)):
            if templates:
                path = Path(directory) / name
                path.write_bytes(b"".join(templates))
                command.append(f"{name}={path}")
        command += [f"{name}={value}" for name, value in keys.items()]
        return _answer(command)


def librdkafka() -> Path:
    """The shared library inside the confluent-kafka wheel. Raises BenchError when it is not there."""
    spec = importlib.util.find_spec("confluent_kafka")
    folder = Path(spec.origin).parent.parent / "confluent_kafka.libs" if spec and spec.origin else None
    libraries = sorted(folder.glob("librdkafka*.so*")) if folder else []
    if not libraries:
        raise BenchError("confluent-kafka is not installed from a wheel: no librdkafka to load with")
    return libraries[0]


def run_librdkafka(port: int, mode: str, *words: str, **options: str) -> dict[str, Any]:
    """One run of rdload.c; `options` are librdkafka's, with _ for the dots."""
    settings = [f"{name.replace('_', '.')}={value}" for name, value in options.items()]
    command = [str(build("rdload.c")), str(librdkafka()), mode, f"127.0.0.1:{port}", *words, *settings]
    return _answer(command)


class Sink:
    """A server that acknowledges all and stores nothing: what it reaches is the generator's own ceiling."""

    def __init__(self, batch_bytes: int) -> None:
        self.port = free_port()
        self._file = tempfile.NamedTemporaryFile(prefix="bench-sink-")  # noqa: SIM115 - closed in stop()
        self._file.write(fetch_response("t", filled_batch(1000, batch_bytes)[0]))
        self._file.flush()
        self.process = subprocess.Popen(
            [str(build("load.c")), "sink", str(self.port), self._file.name], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._file.close()
