"""A broker's ephemeral node: the broker is alive as long as the node exists."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.coordination.tree import BadVersion, NodeExists
from barnabas.cores.znode_layout import Broker, broker_path, encode_broker, incarnation_path
from barnabas.cores.znode_ops import Create, Op, Set

if TYPE_CHECKING:
    from barnabas.broker.cluster.executor import Executor
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.controller")

REGISTER_POLL_S: Final = 0.1


class Registration:
    """See the module."""

    def __init__(self, executor: Executor, clock: Clock, broker: Broker, patience_s: float) -> None:
        """patience_s: how long to wait for an earlier session to end."""
        self._executor = executor
        self._clock = clock
        self._broker = broker
        self._patience_s = patience_s
        self.epoch = -1
        """The broker epoch: it is larger with each registration."""

    async def be_registered(self) -> None:
        """Create this broker's ephemeral node, waiting while one of an earlier session exists. Raises OSError, TreeError."""
        path = broker_path(self._broker.id)
        deadline_s = self._clock.monotonic_ms() / 1000 + self._patience_s
        warned = False
        while True:
            stat = await self._executor.tree.exists(path)
            if stat is not None and stat.owner == self._executor.tree.session_id:
                break
            if stat is None:
                try:
                    await self._create(path)
                except (NodeExists, BadVersion):
                    continue
                log.info("registered", extra={"path": path})
                continue
            if not warned:
                warned = True
                log.warning(
                    "a node of this id is registered, perhaps by this broker's last run; waiting until it goes",
                    extra={"path": path, "wait_s": self._patience_s},
                )
            if self._clock.monotonic_ms() / 1000 > deadline_s:
                raise OSError(
                    f"a broker with node.id={self._broker.id} is registered already: {path} belongs to another session, "
                    f"{stat.owner:#x}; stop that broker or give this one another node.id"
                )
            await asyncio.sleep(REGISTER_POLL_S)
        data, stat = await self._executor.tree.get(path)
        self.epoch = stat.czxid
        self._executor.image.put(path, data, stat.version, stat.czxid)

    async def _create(self, path: str) -> None:
        """Create the ephemeral node and count the registration, in one step: whoever has decided something about an earlier
        registration of this broker, and checks the count, is refused from now on. Raises TreeError."""
        counter = incarnation_path(self._broker.id)
        stat = await self._executor.tree.exists(counter)
        version = 0 if stat is None else stat.version + 1
        count: Op = Create(counter) if stat is None else Set(counter, b"", stat.version)
        data = encode_broker(replace(self._broker, incarnation=version))
        await self._executor.tree.multi([count, Create(path, data, ephemeral=True)])
