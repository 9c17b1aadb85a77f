"""The table of the APIs that the broker serves."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from barnabas.broker.api import handlers
from barnabas.broker.api.table import APIS, BY_KEY, OWN_APIS, HandledBy


def test_served_versions() -> None:
    for api in APIS:
        low, high = api.versions[0], api.versions[-1]
        newest = api.request.VERSIONS[-1]
        # Kafka serves InitProducerId 6 (two-phase commit) only behind an unstable-versions switch.
        assert high == (5 if api.name == "InitProducerId" else newest), api.name
        assert low in api.request.VERSIONS
        assert api.request.__name__ == api.name + "Request"
        assert api.response.__name__ == api.name + "Response"
        assert BY_KEY[api.key] is api
    assert len(BY_KEY) == len(APIS) + len(OWN_APIS)
    # Produce is announced from 0 for the sake of old librdkafka (KAFKA-18659).
    assert BY_KEY[0].versions == range(14)


def test_each_row_has_its_handler_and_each_handler_its_row() -> None:
    named = set()
    for api in BY_KEY.values():
        for version in api.versions:
            handler = api.handler_of(version)
            assert isinstance(handler, HandledBy)
            named.add(handler)
    assert all(callable(handler.load()) for handler in named)
    modules = {
        module.name.removeprefix(handlers.__name__ + ".")
        for module in pkgutil.walk_packages(handlers.__path__, handlers.__name__ + ".")
        if not module.ispkg and "def handle(" in _source(module.name)
    }
    assert modules == {handler.module for handler in named}


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text()


def test_the_table_imports_neither_messages_nor_handlers() -> None:
    script = (
        "import sys, barnabas.broker.api.table;"
        "print([m for m in sys.modules if m.startswith('barnabas.wire.messages.')"
        " or m.startswith('barnabas.wire.compile') or m.startswith('barnabas.broker.api.handlers.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # The one message that a request's header needs.
    assert done.stdout.strip() == "['barnabas.wire.messages.api_versions']"
