"""The failover lesson: three brokers hold a topic, the first broker is killed, and the messages keep coming.

    python examples/failover/run.py

Every command is printed before it runs, so that the lesson can be typed by hand. It ends with exit code 0 when each message
that was sent has been read.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

TOPIC: Final = "my-failsafe-topic"
GROUP: Final = "mygroup"
PATIENCE_S: Final = 180
BIN: Final = Path(sys.executable).parent


class Lesson:
    """The commands of the lesson, over one folder and from one port on."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.bootstrap = ",".join(f"localhost:{port + at}" for at in range(3))
        self.sent: list[str] = []

    @contextmanager
    def cluster(self) -> Iterator[None]:
        """Three brokers and ZooKeeper, until the block ends."""
        words = [
            "barnabas",
            "cluster",
            "start",
            "--brokers",
            "3",
            "--data",
            str(self.folder),
            "--port",
            str(self.port),
        ]
        with self.background(words, stdout=subprocess.PIPE) as started:
            assert started.stdout is not None
            ready = started.stdout.readline()
            if not ready:
                sys.exit("the cluster did not start")
            print(ready)
            yield

    @contextmanager
    def consumers(self) -> Iterator[list[Path]]:
        """Three members of one group; the files that they write what they read to."""
        words = [
            "kafka-console-consumer",
            "--bootstrap-server",
            self.bootstrap,
            "--topic",
            TOPIC,
            "--group",
            GROUP,
        ]
        words += ["--from-beginning"]
        files = [self.folder / f"consumer-{number}.out" for number in (1, 2, 3)]
        with self.output(words, files[0]), self.output(words, files[1]), self.output(words, files[2]):
            self.until(lambda: len(self.members()) == 3, "the group has three members")
            yield files

    def members(self) -> set[str]:
        """The members that have partitions."""
        words = [
            "kafka-consumer-groups",
            "--bootstrap-server",
            self.bootstrap,
            "--describe",
            "--group",
            GROUP,
        ]
        shown = self.quietly(words).splitlines()
        return {line.split()[6] for line in shown if line.startswith(GROUP) and line.split()[6] != "-"}

    def send(self, producer: subprocess.Popen[str], count: int) -> None:
        """The next messages: m1, m2, ..."""
        assert producer.stdin is not None
        fresh = [f"m{len(self.sent) + number}" for number in range(1, count + 1)]
        print(f"> key-{fresh[0]}:{fresh[0]} ... key-{fresh[-1]}:{fresh[-1]}\n", flush=True)
        producer.stdin.write("".join(f"key-{message}:{message}\n" for message in fresh))
        producer.stdin.flush()
        self.sent += fresh

    def await_all(self, files: list[Path]) -> None:
        """Wait until the consumers have read every message at least once."""

        def all_read() -> bool:
            return set(self.sent) <= {line for file in files for line in file.read_text().split()}

        self.until(all_read, f"all of {len(self.sent)} messages have been read")
        for number, file in enumerate(files, 1):
            print(f"consumer {number} has read {len(file.read_text().split())} messages")
        print()

    def describe_until(self, wanted: Callable[[str], bool], what: str) -> None:
        """Print what `kafka-topics --describe` shows once every partition is as wanted."""
        words = ["kafka-topics", "--bootstrap-server", self.bootstrap, "--describe", "--topic", TOPIC]

        def is_so() -> bool:
            lines = [line for line in self.quietly(words).splitlines() if "Partition: " in line]
            return len(lines) == 13 and all(wanted(line) for line in lines)

        self.until(is_so, what)
        self.run(words)

    # --- commands ----------------------------------------------------------------------------------------

    def run(self, words: list[str]) -> None:
        """Print a command, run it, print what it prints. Ends the lesson when it fails."""
        print(f"$ {' '.join(words)}", flush=True)
        done = subprocess.run(
            [BIN / words[0], *words[1:]], text=True, capture_output=True, timeout=PATIENCE_S
        )
        print(done.stdout + done.stderr)
        if done.returncode:
            sys.exit(f"{words[0]} ended with exit code {done.returncode}")

    def quietly(self, words: list[str]) -> str:
        """What a command prints."""
        return subprocess.run(
            [BIN / words[0], *words[1:]], text=True, capture_output=True, timeout=PATIENCE_S
        ).stdout

    @contextmanager
    def output(self, words: list[str], file: Path) -> Iterator[None]:
        """A command in the background that writes to a file."""
        with file.open("w") as out, self.background(words, stdout=out):
            yield

    @contextmanager
    def background(self, words: list[str], **streams: object) -> Iterator[subprocess.Popen[str]]:
        """A command in the background, until the end of the block."""
        print(f"$ {' '.join(words)} &", flush=True)
        process = subprocess.Popen([BIN / words[0], *words[1:]], text=True, **streams)  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; the lesson ends if it does not come true."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                sys.exit(f"not within {PATIENCE_S} s: {what}")
            time.sleep(0.5)


def teach(lesson: Lesson) -> None:
    """The lesson."""
    kafka = ["--bootstrap-server", lesson.bootstrap]
    create = [
        "kafka-topics",
        *kafka,
        "--create",
        "--topic",
        TOPIC,
        "--partitions",
        "13",
        "--replication-factor",
        "3",
    ]
    with lesson.cluster():
        lesson.run(create)
        lesson.describe_until(lambda line: in_sync(line) == {"1", "2", "3"}, "all replicas are in sync")
        with lesson.consumers() as files:
            words = ["kafka-console-producer", *kafka, "--topic", TOPIC, "--producer-property", "acks=all"]
            words += ["--property", "parse.key=true", "--property", "key.separator=:"]
            with lesson.background(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as producer:
                lesson.send(producer, 100)
                lesson.await_all(files)
                lesson.run(["barnabas", "cluster", "kill", "1", "--data", str(lesson.folder)])
                lesson.send(producer, 100)
                lesson.describe_until(
                    lambda line: in_sync(line) == {"2", "3"}, "the others lead, and are in sync"
                )
                lesson.await_all(files)
                lesson.run(["barnabas", "cluster", "start-broker", "1", "--data", str(lesson.folder)])
                lesson.describe_until(lambda line: in_sync(line) == {"1", "2", "3"}, "broker 1 has caught up")
                lesson.send(producer, 100)
                lesson.await_all(files)
    print("every message that was sent has been read")


def in_sync(line: str) -> set[str]:
    """The in-sync set in a line of `kafka-topics --describe`; empty when its leader is not in it."""
    fields = dict(part.split(": ", 1) for part in line.strip().split("\t") if ": " in part)
    brokers = set(fields["Isr"].split(","))
    return brokers if fields["Leader"] in brokers else set()


def main() -> None:
    """Read the options and run the lesson."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument(
        "--data", type=Path, help="folder of the cluster; a temporary one when it is not given"
    )
    options.add_argument("--port", type=int, default=19092, help="of the first broker (19092)")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="failover-") as temporary:
        teach(Lesson((chosen.data or Path(temporary)).absolute(), chosen.port))


if __name__ == "__main__":
    main()
