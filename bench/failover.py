"""How long a cluster is without leaders: `python -m bench.failover [--rounds N] [--full] [--brokers barnabas,kafka]`.

Three brokers, a topic with factor 3, and `kill -9` of one broker, which led a third of the partitions. From then on the
time runs until the others have noticed, until each of them names a living leader of every partition (Metadata), and
until every partition has answered a record with acks=all. Then the broker comes back, and the next round kills another.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from barnabas.wire.messages.elect_leaders import ElectLeadersRequest
from bench.brokers import Unavailable
from bench.clusters import BROKERS, BarnabasCluster, Client, Cluster, KafkaCluster
from bench.report import machine, markdown
from bench.requests import BenchError

TOPIC: Final = "failover"
PREFERRED: Final = 0
ELECT_VERSION: Final = 2
COUNTS: Final = (1, 100, 1_000)
FULL_COUNTS: Final = (*COUNTS, 5_000)
RESULTS: Final = Path(__file__).parent / "results"
LOOK_S: Final = 0.02
PATIENCE_S: Final = 120.0
CLUSTERS: Final = {"barnabas": BarnabasCluster, "kafka": KafkaCluster}
BUDGET_S: Final = 2.0
BUDGET_PARTITIONS: Final = 1_000


@dataclass
class Sample:
    """All but `cpu_s` in seconds since the kill. session_s: None where it cannot be seen from outside."""

    cluster: str
    partitions: int
    victim: str
    session_s: float | None
    leaders_s: float
    produced_s: float
    cpu_s: float


class Session:
    """Notes when ZooKeeper ends the session of a broker."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        self._client = None
        self.ended_s: float | None = None
        self._ended = threading.Event()
        if isinstance(cluster, BarnabasCluster):
            from kazoo.client import KazooClient

            self._client = KazooClient(cluster.zookeeper)
            self._client.start(20)
            self._client.exists(f"/brokers/ids/{broker}", watch=self._seen)

    def _seen(self, _: object) -> None:
        self.ended_s = time.monotonic()
        self._ended.set()

    def close(self) -> None:
        if self._client is not None:
            self._ended.wait(5)
            self._client.stop()
            self._client.close()


def await_leaders(cluster: Cluster, topic: str, partitions: int, victim: int) -> float:
    """When every living broker names a living leader of every partition, by the monotonic clock."""
    until_s = time.monotonic() + PATIENCE_S
    for broker in BROKERS:
        if broker == victim:
            continue
        with Client(cluster.ports[broker]) as client:
            while True:
                leaders = [leader for leader, _ in client.partitions(topic)[1].values()]
                if len(leaders) == partitions and not {-1, victim} & set(leaders):
                    break
                if time.monotonic() > until_s:
                    raise BenchError(f"{topic} has no leaders {PATIENCE_S:g} s after the kill")
                time.sleep(LOOK_S)
    return time.monotonic()


def await_produced(cluster: Cluster, topic: str, partitions: int, victim: int) -> float:
    """When every partition has answered a record with acks=all, by the monotonic clock."""
    left = set(range(partitions))
    until_s = time.monotonic() + PATIENCE_S
    living = [broker for broker in BROKERS if broker != victim]
    with contextlib.ExitStack() as stack:
        clients = {broker: stack.enter_context(Client(cluster.ports[broker])) for broker in living}
        while left:
            _, partitions_now = clients[living[0]].partitions(topic)
            for broker in living:
                asked = [index for index in left if partitions_now.get(index, (-1, ()))[0] == broker]
                if asked:
                    errors = clients[broker].produce(topic, asked, b"after the kill")
                    left -= {index for index, code in errors.items() if not code}
            if left and time.monotonic() > until_s:
                raise BenchError(f"{len(left)} partitions take nothing {PATIENCE_S:g} s after the kill")
            if left:
                time.sleep(LOOK_S)
    return time.monotonic()


def measure(cluster: Cluster, topic: str, partitions: int, kills_controller: bool) -> Sample:
    """One kill, and the return of the broker."""
    with Client(cluster.ports[1]) as client:
        controller, partitions_now = client.partitions(topic)
    leaders = {leader for leader, _ in partitions_now.values()}
    others = [broker for broker in BROKERS if broker != controller and (broker in leaders or partitions > 1)]
    # In KRaft the controller that clients are told of is any broker; the victim is then just another one.
    victim = controller if kills_controller or not others else others[0]
    if partitions == 1:
        victim = next(iter(leaders))
    living = [broker for broker in BROKERS if broker != victim]
    session = Session(cluster, victim)
    try:
        cpu_s = cluster.cpu_s(living)
        killed_s = cluster.kill(victim)
        leaders_s = await_leaders(cluster, topic, partitions, victim)
        produced_s = await_produced(cluster, topic, partitions, victim)
        spent_s = cluster.cpu_s(living) - cpu_s
    finally:
        session.close()
    ended_s = None if session.ended_s is None else session.ended_s - killed_s
    was = "controller" if victim == controller and cluster.name == "barnabas" else "broker"
    cluster.start_again(victim)
    cluster.await_in_sync(topic, partitions, BROKERS)
    _lead_again(cluster)
    return Sample(
        cluster.name, partitions, was, ended_s, leaders_s - killed_s, produced_s - killed_s, spent_s
    )


def _lead_again(cluster: Cluster) -> None:
    """Give each broker its third of the partitions again."""
    controller, _ = cluster.leaders(TOPIC, BROKERS[0])
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=60_000)
    with Client(cluster.ports[controller], timeout_s=60) as client:
        client.ask(request, ELECT_VERSION)
    time.sleep(1)


def samples(kind: type[Cluster], counts: tuple[int, ...], rounds: int, directory: Path) -> Iterator[Sample]:
    """One cluster for each number of partitions; every second round kills the controller."""
    for count in counts:
        cluster = kind(directory / f"{kind.name}-{count}")
        try:
            cluster.start()
            cluster.create(TOPIC, count)
            for number in range(rounds):
                yield measure(cluster, TOPIC, count, kills_controller=number % 2 == 1)
        finally:
            cluster.stop()


def table(all_samples: list[Sample]) -> str:
    rows = []
    for key in dict.fromkeys((s.cluster, s.partitions, s.victim) for s in all_samples):
        of_key = [s for s in all_samples if (s.cluster, s.partitions, s.victim) == key]
        sessions = [s.session_s for s in of_key if s.session_s is not None]
        after = [
            (s.leaders_s - s.session_s, s.produced_s - s.session_s) for s in of_key if s.session_s is not None
        ]
        rows.append([
            key[0], f"{key[1]:,}", key[2],
            f"{statistics.median(sessions):.2f}" if sessions else "-",
            f"{statistics.median(a for a, _ in after):.2f}" if after else "-",
            f"{statistics.median(b for _, b in after):.2f}" if after else "-",
            f"{statistics.median(s.leaders_s for s in of_key):.2f}",
            f"{statistics.median(s.produced_s for s in of_key):.2f}",
            f"{statistics.median(s.cpu_s for s in of_key):.2f}",
        ])  # fmt: skip
    head = ["cluster", "partitions", "killed", "session ends", "then leaders", "then produced", "leaders since the kill",
            "produced since the kill", "CPU of the others"]  # fmt: skip
    return markdown([head, *rows])


def main() -> None:
    """Run, print a table and write it to results/."""
    options = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--full", action="store_true", help="5,000 partitions as well")
    options.add_argument("--partitions", type=int, help="only this number")
    options.add_argument("--brokers", default="barnabas,kafka")
    options.add_argument("--no-files", action="store_true", help="print only")
    chosen = options.parse_args()
    counts: tuple[int, ...] = FULL_COUNTS if chosen.full else COUNTS
    if chosen.partitions:
        counts = (chosen.partitions,)
    measured: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as directory:
        for name in chosen.brokers.split(","):
            try:
                for sample in samples(CLUSTERS[name], counts, chosen.rounds, Path(directory)):
                    print(sample, flush=True)
                    measured.append(sample)
            except Unavailable as error:
                print(f"{name} is left out: {error}", flush=True)
    text = table(measured)
    print(text)
    if not chosen.no_files:
        host = ", ".join(f"{name} {value}" for name, value in machine().items())
        head = f"# Failover\n\n`python -m bench.failover`: seconds, medians. {host}.\n\n"
        (RESULTS / "failover.md").write_text(head + text + "\n")
        (RESULTS / "failover.json").write_text(json.dumps([asdict(s) for s in measured], indent=1) + "\n")
    slow = [
        sample
        for sample in measured
        if sample.session_s is not None
        and sample.partitions <= BUDGET_PARTITIONS
        and sample.produced_s - sample.session_s > BUDGET_S
    ]
    for sample in slow:
        print(f"over the budget of {BUDGET_S:g} s after the session's end: {sample}")
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
