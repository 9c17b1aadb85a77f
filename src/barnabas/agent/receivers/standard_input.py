"""Standard input, line by line."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from barnabas.agent.receivers.receiver import Receiver


@dataclass(slots=True, eq=False)
class StandardInput(Receiver):
    """Reads to the end."""

    async def receive(self) -> None:
        """See Receiver."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
        rest = b""
        while data := await reader.read(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            await self.keep_lines(lines)
        if rest:
            await self.keep_lines([rest])
        self.ended = True
