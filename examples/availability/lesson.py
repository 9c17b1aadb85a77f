"""The lesson: what happens when, what the clients report each second, and the checks at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from client import FAST, RATE, SAFE
from confluent_kafka import Consumer, TopicPartition
from servers import Cluster, Scene

from barnabas.testing.network import Network

FAULT_S: Final = 22
QUIET_S: Final = 5
CLIENT: Final = Path(__file__).parent / "client.py"
END_S: Final = 240
Row = tuple[int, int, str]
"""Partition, offset and value of a record."""


class Watcher(threading.Thread):
    """Reads the reports of one client."""

    def __init__(self, zone: str, words: list[str], log: Path) -> None:
        super().__init__(daemon=True)
        self.zone = zone
        self.rows: dict[int, dict[str, int]] = {}
        self.last: dict[str, Any] = {}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out
            )
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if "second" in said:
                self.rows[said["second"]] = said
            else:
                self.last = said

    def end(self) -> None:
        """Wait until the client has an answer for everything that it has sent."""
        self.join(END_S)
        self.process.kill()
        self.process.wait()


class Lesson:
    """The steps over a cluster, with the seconds in which they began."""

    def __init__(self, cluster: Cluster, network: Network, scene: Scene) -> None:
        self.cluster = cluster
        self.network = network
        self.scene = scene
        self.events: dict[int, str] = {}
        self.faults: list[str] = []
        self.ill = ""
        self.cuts: list[tuple[str, float, float]] = []
        """Zone, and from when to when it was cut off, by the monotonic clock."""
        self.shown = 0

    def teach(self) -> list[str]:
        """Run the whole lesson; a list of broken promises."""
        print("starting the cluster", flush=True)
        self.cluster.begin()
        self.begin_s = time.monotonic() + 3
        self.watchers = [self._watch(zone) for zone in self.scene.clients]
        try:
            time.sleep(3)
            self._show_head()
            self._happens("all is well")
            self._go_on(QUIET_S)
            for step in self.scene.steps:
                getattr(self, "_" + step.replace(" ", "_"))()
            self._show(self._second() - 1)
        finally:
            for watcher in self.watchers:
                watcher.process.send_signal(signal.SIGTERM)
            for watcher in self.watchers:
                watcher.end()
        self._judge()
        return self.faults

    def _watch(self, zone: str) -> Watcher:
        name = f"client{zone}"
        self.network.add_host(name, zone)
        words = [sys.executable, str(CLIENT), "--name", zone, "--bootstrap", self.cluster.bootstrap]
        words += ["--partitions", str(self.scene.brokers), "--begin", str(self.begin_s)]
        return Watcher(zone, self.network.command(name, words), self.cluster.folder / f"{name}.log")

    # --- steps -------------------------------------------------------------------------------------------

    def _lose(self) -> None:
        self.ill = self.cluster.controller_zone()
        self._happens(f"zone {self.ill}, where the controller is, loses its power")
        self.cluster.kill(self.cluster.of_zone(self.ill))
        self._go_on(FAULT_S)
        self._expect_service([zone for zone in self.scene.clients if zone != self.ill])

    def _bring_back(self) -> None:
        self._happens(f"zone {self.ill} has power again")
        self.cluster.start(self.cluster.of_zone(self.ill))
        self._until_well()

    def _cut_off(self) -> None:
        self.ill = self.cluster.controller_zone()
        self._happens(f"zone {self.ill}, where the controller is, is cut off from all others")
        self.network.cut_zone(self.ill)
        begin_s = time.monotonic()
        self._go_on(FAULT_S)
        self.cuts.append((self.ill, begin_s, time.monotonic()))
        self._expect_service([zone for zone in self.scene.clients if zone != self.ill])

    def _join(self) -> None:
        self._happens(f"zone {self.ill} is joined again")
        self.network.join_zone(self.ill)
        self._until_well()

    def _part(self) -> None:
        one, other = self.scene.clients
        self._happens(f"zones {one} and {other} are cut off from each other; both reach the witness")
        self.network.part(self.network.in_zone(one), self.network.in_zone(other))
        self._go_on(FAULT_S)

    def _mend(self) -> None:
        one, other = self.scene.clients
        self._happens(f"zones {one} and {other} reach each other again")
        self.network.mend(self.network.in_zone(one), self.network.in_zone(other))
        self._until_well()

    def _lose_the_witness(self) -> None:
        self._happens("the witness loses its power")
        self.cluster.kill(self.cluster.of_zone("w"))
        self._go_on(FAULT_S // 2)
        self._expect_service(self.scene.clients)

    def _bring_back_the_witness(self) -> None:
        self._happens("the witness has power again")
        self.cluster.start(self.cluster.of_zone("w"))
        self._until_well()

    def _until_well(self) -> None:
        self._go_on(QUIET_S)  # the part that was cut off does not notice at once
        self.cluster.until(self._elected, "every replica is in sync again")
        self._happens("every replica is in sync, and every broker leads its share")
        self._go_on(QUIET_S)

    def _elected(self) -> bool:
        self._show(self._second() - 2)
        if self.cluster.is_well():
            return True
        self.cluster.elect()
        return False

    def _second(self) -> int:
        return int(time.monotonic() - self.begin_s)

    def _happens(self, what: str) -> None:
        second = self._second()
        self.events[second] = f"{self.events[second]}; {what}" if second in self.events else what

    def _go_on(self, seconds: int) -> None:
        for _ in range(seconds):
            time.sleep(1)
            self._show(self._second() - 2)

    # --- the table ---------------------------------------------------------------------------------------

    def _show_head(self) -> None:
        sent = RATE * self.scene.brokers
        print(
            f"each client sends {sent} records a second with acks=all, {sent} with acks=1, and reads all of"
        )
        print(f"the former ({sent * len(self.watchers)} a second); acknowledged and read in each second:\n")
        print("      " + "".join(f"{f'client in zone {w.zone}':<21}" for w in self.watchers))
        print("second" + f"{'all':>5}{'one':>5}{'read':>6}     " * len(self.watchers), flush=True)

    def _show(self, last: int) -> None:
        for second in range(self.shown, last + 1):
            cells = []
            for watcher in self.watchers:
                row = watcher.rows.get(second)
                cells.append(
                    f"{row['all']:5}{row['one']:5}{row['read']:6}     "
                    if row
                    else f"{'?':>5}{'?':>5}{'?':>6}     "
                )
            print(f"{second:6}{''.join(cells)}{self.events.get(second, '')}".rstrip(), flush=True)
        self.shown = max(self.shown, last + 1)

    # --- the judgement -----------------------------------------------------------------------------------

    def _expect_service(self, zones: list[str]) -> None:
        """At the end of a fault these clients can write to all partitions: in three seconds, everything sent is
        acknowledged.
        """
        sent = RATE * self.scene.brokers
        for watcher in self.watchers:
            if watcher.zone in zones:
                last = sorted(watcher.rows)[-3:]
                if any(watcher.rows[second]["all"] < sent * 0.8 for second in last):
                    self.faults.append(f"the client in zone {watcher.zone} is not served in seconds {last}")

    def _judge(self) -> None:
        for zone, begin_s, end_s in self.cuts:
            watcher = next(w for w in self.watchers if w.zone == zone)
            rows = watcher.last["acknowledged"][SAFE]
            count = sum(1 for *_, sent_s, told_s in rows if begin_s < sent_s and told_s < end_s)
            print(
                f"\nzone {zone}: {count} records were sent and acknowledged with acks=all while it was cut off"
            )
            if count:
                self.faults.append(
                    f"{count} records were acknowledged with acks=all in a zone that was cut off"
                )
        stored = {topic: self._read_whole(topic) for topic in (SAFE, FAST)}
        for topic, acks in ((SAFE, "all"), (FAST, "1")):
            told = [
                tuple(row[:3]) for watcher in self.watchers for row in watcher.last["acknowledged"][topic]
            ]
            lost = [row for row in told if stored[topic].get((row[0], row[1])) != row[2]]
            counts = Counter(stored[topic].values())
            twice = sum(1 for count in counts.values() if count > 1)
            print(
                f"acks={acks}: {len(told)} records acknowledged, {len(lost)} of them lost, {twice} there twice"
            )
            if topic == SAFE:
                self.faults += [f"acknowledged with acks=all and lost: {lost[:3]}"] if lost else []
                self.faults += [f"{twice} records are there twice"] if twice else []
            elif lost:
                zones = Counter(str(row[2]).partition("-")[0] for row in lost)
                print(
                    "  lost: " + ", ".join(f"{count} of the client in zone {z}" for z, count in zones.items())
                )
        for watcher in self.watchers:
            read = [tuple(row) for row in watcher.last["read"]]
            gone = [row for row in read if stored[SAFE].get((row[0], row[1])) != row[2]]
            print(f"the client in zone {watcher.zone} has read {len(read)} of {len(stored[SAFE])} records")
            self.faults += [f"read in zone {watcher.zone} and gone: {gone[:3]}"] if gone else []
            refused = watcher.last["refused"]
            for what, count in refused.items():
                print(f"  refused: {count} {what}")
                self.faults += [f"acks=all was refused: {what}"] if what.startswith(SAFE) else []

    def _read_whole(self, topic: str) -> dict[tuple[int, int], str]:
        consumer = Consumer(
            {"bootstrap.servers": self.cluster.bootstrap, "group.id": "judge", "log_level": 0}
        )
        records: dict[tuple[int, int], str] = {}
        try:
            for index in range(self.scene.brokers):
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=60)
                consumer.assign([TopicPartition(topic, index, 0)])
                at, deadline = 0, time.monotonic() + END_S
                while at < end and time.monotonic() < deadline:
                    for message in consumer.consume(1_000, 0.5):
                        offset = message.offset()
                        if message.error() is None and offset is not None:
                            records[index, offset] = (message.value() or b"").decode()
                            at = offset + 1
                if at < end:
                    self.faults.append(f"{topic}-{index} can be read up to {at} of {end} only")
        finally:
            consumer.close()
        return records
