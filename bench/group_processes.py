"""Processes full of librdkafka consumers (group_clients.py), and when their group came to rest."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.requests import BenchError

SCRIPT = Path(__file__).parent / "group_clients.py"
MEMBERS_PER_PROCESS = 25


class ClientProcesses:
    """Starts `count` members at once."""

    def __init__(self, port: int, topic: str, protocol: str, count: int) -> None:
        self.count = count
        self._lines: queue.Queue[tuple[int, str]] = queue.Queue()
        self._owned: dict[tuple[int, int], frozenset[int]] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._began = time.monotonic()
        for begin in range(0, count, MEMBERS_PER_PROCESS):
            members = min(MEMBERS_PER_PROCESS, count - begin)
            command = [sys.executable, str(SCRIPT), f"127.0.0.1:{port}", topic, topic, protocol, str(members)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._processes.append(process)
            threading.Thread(target=self._read, args=(len(self._processes), process), daemon=True).start()

    def _read(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put((number, line))

    def until_stable(self, partitions: int, timeout_s: float) -> float:
        """Seconds from the start of the processes to the moment since which the partitions are shared evenly."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                process, line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                owned = sum(len(share) for share in self._owned.values())
                raise BenchError(f"not stable within {timeout_s:.0f} s: {owned} partitions owned") from None
            event = json.loads(line)
            self._owned[process, event["member"]] = frozenset(event["owns"])
            if self._lines.empty() and self._is_shared(partitions):
                return float(event["at"]) - self._began

    def _is_shared(self, partitions: int) -> bool:
        shares = self._owned.values()
        if len(shares) < self.count or min(map(len, shares)) < partitions // self.count:
            return False
        return sum(map(len, shares)) == partitions == len(frozenset().union(*shares))

    def stop(self) -> None:
        """Closes them all; who does not end within 10 s is killed."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
