"""What must have happened before the commands that a page shows, where the page does not show it."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.documents.sessions import DEFAULT_ADDRESS, ROOT, Shell, Step
from tests.support.process import BrokerProcess
from tests.support.raw import write_batches
from tests.support.registry import RegistryProcess

MakeBroker = Callable[..., BrokerProcess]
Before = Callable[[], object]

WORK: Final = """
def work(job):
    text, tries = job.value().decode(), job.delivery_count()
    done = AcknowledgeType.ACCEPT
    if text == "bad":
        done = AcknowledgeType.REJECT
    elif text == "later" and tries < 3:
        done = AcknowledgeType.RELEASE
    print(f"{text:<5}  delivery {tries}  {done.name.lower()}", flush=True)
    return done
"""


@dataclass
class Stage:
    """One page's broker and shell. before: by the beginning of a command. loose: commands of whose output only the first
    line is compared, with the reason. left_out: commands that are not run, with the reason."""

    broker: BrokerProcess
    shell: Shell
    before: dict[str, Before] = field(default_factory=dict)
    loose: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    cleanup: ExitStack = field(default_factory=ExitStack)

    def prepare(self, step: Step) -> None:
        """Do what comes before a command, once."""
        for begin in [begin for begin in self.before if step.command.startswith(begin)]:
            self.before.pop(begin)()

    def is_loose(self, step: Step) -> bool:
        return any(step.command.startswith(begin) for begin in self.loose)

    def is_left_out(self, step: Step) -> bool:
        return any(step.command.startswith(begin) for begin in self.left_out)

    def do(self, *commands: str) -> Before:
        """Commands of which nothing is compared."""

        def run() -> None:
            for command in commands:
                self.shell.run(command)

        return run


def plain(make: MakeBroker, folder: Path, **options: str) -> Stage:
    broker = make(folder / "data", **options)
    return Stage(broker, Shell(broker.bootstrap, folder))


def readme(make: MakeBroker, folder: Path) -> Stage:
    stage = plain(make, folder)
    ready = stage.broker.ready_line.strip()
    stage.shell.answers["barnabas start"] = [ready]
    return stage


def administration(make: MakeBroker, folder: Path) -> Stage:
    stage = plain(make, folder)
    stage.before["barnabas config set topic orders"] = lambda: make_topic(stage, NewTopic("orders", 1))
    stage.before["barnabas clients --metrics"] = lambda: push_metrics(stage)
    stage.loose["barnabas clients --metrics"] = "what a client measures differs from run to run"
    return stage


def push_metrics(stage: Stage) -> None:
    """A producer that the subscription of the page makes push its metrics."""
    producer = Producer({"bootstrap.servers": stage.broker.bootstrap, "client.id": "shop", "log_level": 0})
    stage.cleanup.callback(producer.flush, 10)
    for _ in range(100):
        producer.produce("orders", b"1")
        producer.flush(10)
        producer.poll(0.1)
        shown = stage.shell.run("barnabas clients --metrics org.apache.kafka.producer.node")
        if len(shown) > 2:
            return


def cli(make: MakeBroker, folder: Path) -> Stage:
    disks = [folder / "disk1", folder / "disk2"]
    broker = make(disks[0], log__dirs=",".join(map(str, disks)))
    stage = Stage(broker, Shell(broker.bootstrap, folder))
    stage.shell.replaced |= {
        "/mnt/disk1": str(disks[0]),
        "/mnt/disk2": str(disks[1]),
        "/var/lib/kafka": str(folder / "kafka"),
    }
    (folder / "moves.json").write_text(
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
    )
    (folder / "server.properties").write_text(f"log.dirs={folder / 'kafka'}\nnode.id=1\n")
    stage.before["barnabas group describe billing"] = lambda: fill_orders(stage)
    stage.before["barnabas quota list"] = stage.do(
        "barnabas quota set --client noisy producer_byte_rate=1048576"
    )
    stage.before["barnabas log move archive /mnt/disk2"] = lambda: fill_archive(stage)
    stage.loose["barnabas log dirs archive"] = "how far the move is differs from run to run"
    stage.before["barnabas topic list -b localhost:8080"] = lambda: web_server(stage)
    return stage


def fill_orders(stage: Stage) -> None:
    """Two partitions of which a group has read all but the newest record."""
    make_topic(stage, NewTopic("orders", 2, config={"retention.ms": "86400000"}))
    produce(stage, "orders", 0, b"a")
    produce(stage, "orders", 1, b"b")
    stage.shell.run("barnabas consume orders -g billing -e")
    produce(stage, "orders", 1, b"c")


def fill_archive(stage: Stage) -> None:
    """Some megabytes in the first log dir, and a limit at which a move of them takes half a minute."""
    make_topic(stage, NewTopic("archive", 1))
    produce(stage, "archive", 0, *[b"x" * 1000] * 3000)
    stage.shell.run("barnabas log move archive /mnt/disk1 --wait")
    stage.shell.run("barnabas config set broker 1 replica.alter.log.dirs.io.max.bytes.per.second=100000")


def make_topic(stage: Stage, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": stage.broker.bootstrap})
    admin.create_topics([topic])[topic.topic].result(60)


def produce(stage: Stage, topic: str, partition: int, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": stage.broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


class Silent(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: the questions of the tools are no HTTP."""


def web_server(stage: Stage) -> None:
    """Something that speaks HTTP where the page has it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stage.cleanup.callback(server.server_close)
    stage.cleanup.callback(server.shutdown)
    stage.shell.replaced["localhost:8080"] = f"localhost:{server.server_port}"


def damage(make: MakeBroker, folder: Path) -> Stage:
    stage = plain(make, folder)
    stage.shell.replaced["/tmp/data"] = str(stage.broker.data_dir)
    stage.before["barnabas status"] = lambda: damage_a_batch(stage)
    stage.before["barnabas start --data"] = lambda: lose_the_metadata(stage)
    return stage


def damage_a_batch(stage: Stage) -> None:
    """Batches of three records, of which the tenth has a flipped bit; the broker has been started since."""
    make_topic(stage, NewTopic("orders", 1))
    values = [b"order %04d" % i for i in range(60)]
    write_batches(stage.broker, "orders", [values[i : i + 3] for i in range(0, 60, 3)])
    stage.broker.kill()
    log = stage.broker.data_dir / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[data.index(b"order 0028")] ^= 1
    log.write_bytes(data)
    stage.broker.start()


def lose_the_metadata(stage: Stage) -> None:
    stage.broker.stop()
    for path in stage.broker.data_dir.glob("znodes.sqlite*"):
        path.unlink()


def share_groups(make: MakeBroker, folder: Path) -> Stage:
    stage = plain(make, folder)
    stack = stage.cleanup
    worker: list[Any] = []
    stage.before["barnabas group list"] = lambda: worker.append(stack.enter_context(working(stage)))
    stage.before["kafka-console-consumer --topic dlq.jobs"] = lambda: worker[0]()
    return stage


@contextmanager
def working(stage: Stage) -> Iterator[Callable[[], None]]:
    """The worker of the page, once it has done everything that the page shows; yields what ends it."""
    page = (ROOT / "docs" / "share-groups.md").read_text("utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    shown = re.search(r"```\n(one    delivery 1.*?)```", page, re.DOTALL)
    assert code is not None
    assert shown is not None
    head, _, loop = code[1].partition("worker = ")
    program = f"import signal, sys\n{head}{WORK}\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit())\nworker = {loop}"
    begin, keyword, rest = program.partition("while True:")
    body = "".join(f"    {line}\n" for line in f"{keyword}{rest}".splitlines())
    program = f"{begin}try:\n{body}finally:\n    worker.close()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program.replace(DEFAULT_ADDRESS, stage.broker.bootstrap)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None

    def end() -> None:
        process.terminate()
        process.wait(60)

    try:
        printed = [process.stdout.readline() for _ in shown[1].splitlines()]
        assert sorted(printed) == sorted(f"{line}\n" for line in shown[1].splitlines())
        yield end
    finally:
        end()
        process.stdout.close()


ORDER: Final = """{"type": "record", "name": "Order", "namespace": "shop",
 "fields": [{"name": "id", "type": "string"}, {"name": "price", "type": "double"}%s]}"""


def registry(make: MakeBroker, folder: Path) -> Stage:
    stage = plain(make, folder)
    for name, more in (
        ("order", ""),
        ("order2", ', {"name": "note", "type": "string"}'),
        ("order3", ', {"name": "note", "type": "string", "default": ""}'),
    ):
        (folder / f"{name}.avsc").write_text(ORDER % more)
    note = ', {"name": "note", "type": ["null", "string"], "default": null}'
    (folder / "gift.avsc").write_text(ORDER.replace("Order", "Gift") % note)
    contract = re.search(r"```json\n(.*?)```", (ROOT / "docs" / "registry.md").read_text(), re.DOTALL)
    assert contract is not None
    (folder / "payment.json").write_text(contract[1])
    service = RegistryProcess(stage.broker.bootstrap, folder / "registry.log").start()
    stage.cleanup.callback(service.end)
    service.await_writer()
    for name in ("schema", "produce", "consume"):
        stage.shell.replaced[f"barnabas {name}"] = f"BARNABAS_REGISTRY={service.url} barnabas {name}"
    stage.shell.replaced["localhost:8081"] = service.url.removeprefix("http://")
    return stage


STAGES: Final[dict[str, Callable[[MakeBroker, Path], Stage]]] = {
    "README.md": readme,
    "docs/administration.md": administration,
    "docs/cli.md": cli,
    "docs/damage.md": damage,
    "docs/registry.md": registry,
    "docs/share-groups.md": share_groups,
}
