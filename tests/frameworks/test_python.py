"""Python's stream and task frameworks, from PyPI, started as their documentation says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.clients.foreign import fetch_or_skip, made
from tests.frameworks.harness import MESSAGES, capitals, prepare
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.soak

APPS: Final = Path(__file__).parent / "python"


class Framework(NamedTuple):
    """What pip installs, and the command that runs python/NAME_app.py."""

    name: str
    packages: tuple[str, ...]
    command: tuple[str, ...]
    topics: str = ""
    """The beginning of its topics' names, if that is not `name`."""


FRAMEWORKS: Final = (
    Framework(
        "faststream", ("faststream[confluent,kafka,cli]==0.7.8",), ("faststream", "run", "faststream_app:app")
    ),
    Framework(
        "faststream",
        ("faststream[confluent,kafka,cli]==0.7.8",),
        ("faststream", "run", "faststream_aio_app:app"),
        "faststream-aio",
    ),
    Framework(
        "celery",
        ("celery==5.7.0", "confluent-kafka==2.12.2"),
        ("celery", "-A", "celery_app", "worker", "-P", "solo"),
    ),
    Framework("faust", ("faust-streaming==0.15.3",), ("faust", "-A", "faust_app", "worker")),
    Framework("quix", ("quixstreams==3.28.1",), ("python", "quix_app.py")),
    Framework(
        "bytewax",
        ("bytewax==0.21.1", "confluent-kafka==2.12.2"),
        ("python", "-m", "bytewax.run", "bytewax_app"),
    ),
)


def environment(framework: Framework) -> Path:
    """A virtual environment with the framework, made once."""

    def install(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        fetch_or_skip([*pip, *framework.packages], APPS, f"pip cannot fetch {framework.name}")

    version = framework.packages[0].rpartition("==")[2]
    return made(f"framework-{framework.name}-{version}-py{sys.version_info[0]}{sys.version_info[1]}", install)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.topics or framework.name)
def test_capitals(framework: Framework, broker: BrokerProcess, tmp_path: Path) -> None:
    place, topics = environment(framework), framework.topics or framework.name
    env = {
        "BOOTSTRAP": broker.bootstrap,
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(APPS),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    prepare(broker.bootstrap, topics)
    if framework.name == "celery":  # its queue is a topic of its own
        send = f"import celery_app\nfor text in {MESSAGES}: celery_app.upper.delay(text)"
        subprocess.run(
            [place / "bin" / "python", "-c", send], env={**os.environ, **env}, check=True, timeout=120
        )
    command = list(framework.command)
    if command[-1].endswith(".py"):
        command[-1] = str(APPS / command[-1])
    capitals(broker.bootstrap, topics, command, tmp_path, env)
