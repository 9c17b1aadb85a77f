"""Implementations of the znode tree under one contract."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from barnabas.coordination.local import LocalStore
from barnabas.coordination.tree import ZnodeTree

T = TypeVar("T")


class Ensemble(Protocol):
    """A place with trees: sessions can be opened and made to expire."""

    async def session(self) -> ZnodeTree: ...

    async def expire(self, tree: ZnodeTree) -> None: ...

    async def close(self) -> None: ...


class LocalEnsemble:
    def __init__(self, path: Path | None) -> None:
        self._store = LocalStore(path)

    async def session(self) -> ZnodeTree:
        return self._store.session()

    async def expire(self, tree: ZnodeTree) -> None:
        self._store.expire(tree.session_id)

    async def close(self) -> None:
        self._store.close()


Scenario = Callable[[Ensemble], Awaitable[T]]
Runner = Callable[[Scenario[T]], T]


@pytest.fixture(params=["memory", "file"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Runner[object]:
    """Runs one scenario against an empty tree."""

    async def body(scenario: Scenario[object]) -> object:
        path = tmp_path / "metadata.db" if request.param == "file" else None
        ensemble: Ensemble = LocalEnsemble(path)
        try:
            return await scenario(ensemble)
        finally:
            await ensemble.close()

    return lambda scenario: asyncio.run(body(scenario))
