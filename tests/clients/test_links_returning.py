"""A failback that ends early, at each of its steps or because something is killed, is finished by running it again."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from barnabas.admin import Admin
from barnabas.cli.main import run as barnabas
from barnabas.cores.links import LinkSpec
from barnabas.testing import Broker
from tests.clients.test_links import caught_up, link_of, linked, read, send, topic
from tests.support.cluster import until
from tests.support.process import BrokerProcess


def back_to(target: str, name: str) -> dict[str, str]:
    """The link that a failback creates at the source."""
    return LinkSpec(name, {"bootstrap.servers": target}, name, interval_ms=100, takes_over=True).texts()


def steps(source: Admin, target: Admin, name: str, target_address: str) -> list[Callable[[], object]]:
    """What a failback does, one after the other, with a link of a topic of the same name."""
    return [
        lambda: (source.links.create(name, back_to(target_address, name)), caught_up(source, name, 1, 3)),
        lambda: (target.links.mirror_again(name), caught_up(source, name, 1, 4)),
        lambda: source.links.promote(name),
        lambda: target.links.resume(name),
    ]


def test_a_failback_goes_on_after_each_of_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as source, Broker() as target, Admin(source.bootstrap) as there:
        for cut in range(5):
            name = f"cut-{cut}"
            topic(source.bootstrap, name, retention__ms="-1")
            send(source.bootstrap, name, ["a", "b"])
            with linked(source.bootstrap, target.bootstrap, name, name) as here:
                caught_up(here, name, 1, 2)
                here.links.promote(name)
                send(target.bootstrap, name, ["c"])
                for number, step in enumerate(steps(there, here, name, target.bootstrap)[:cut]):
                    if number == 1:
                        send(target.bootstrap, name, ["d"])
                    step()
                assert (
                    barnabas(["mirror", "link", "failback", name, "--preview", "-b", target.bootstrap]) == 0
                )
                assert barnabas(["mirror", "link", "failback", name, "-b", target.bootstrap]) == 0, cut
                assert link_of(here, name).state == "mirroring"
                assert name not in {link.name for link in there.links.describe()}
                send(source.bootstrap, name, ["again"])
                count = 4 if cut < 2 else 5
                caught_up(here, name, 1, count)
                assert read(target.bootstrap, name, count) == read(source.bootstrap, name, count)
                with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
                    send(target.bootstrap, name, ["e"])
                capsys.readouterr()
                assert barnabas(["mirror", "link", "failback", name, "-b", target.bootstrap]) == 1
                assert "promote it first" in capsys.readouterr().err


def test_a_second_failback_after_one_that_was_cut_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as source, Broker() as target, Admin(source.bootstrap) as there:
        topic(source.bootstrap, "twice", retention__ms="-1")
        send(source.bootstrap, "twice", ["a", "b"])
        with linked(source.bootstrap, target.bootstrap, "twice", "twice") as here:
            caught_up(here, "twice", 1, 2)
            here.links.promote("twice")
            send(target.bootstrap, "twice", ["c"])
            for number, step in enumerate(steps(there, here, "twice", target.bootstrap)):
                if number == 1:
                    send(target.bootstrap, "twice", ["d"])
                step()
            send(source.bootstrap, "twice", ["e"])
            caught_up(here, "twice", 1, 5)
            here.links.promote("twice")
            send(target.bootstrap, "twice", ["f"])
            assert barnabas(["mirror", "link", "failback", "twice", "-b", target.bootstrap]) == 0
            assert [row[3] for row in read(source.bootstrap, "twice", 6)] == [
                b"a",
                b"b",
                b"c",
                b"d",
                b"e",
                b"f",
            ]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", ["command", "source", "target"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("verb", ["failback", "reverse"])
def test_a_way_back_that_is_killed_is_finished_by_the_next_one(
    tmp_path: Path, killed: str, seed: int, verb: str
) -> None:
    chance = random.Random(f"{killed} {seed} {verb}")
    source, target = BrokerProcess(tmp_path / "source"), BrokerProcess(tmp_path / "target")
    names = [f"t{number}" for number in range(6)]
    try:
        source.start()
        target.start()
        for name in names:
            topic(source.bootstrap, name, retention__ms="-1")
            send(source.bootstrap, name, ["a", "b"])
        with linked(source.bootstrap, target.bootstrap, "dr", "t.") as here:
            caught_up(here, "dr", len(names), 2)
            here.links.promote("dr")
        for name in names:
            send(source.bootstrap, name, ["lost"])
            send(target.bootstrap, name, ["c", "d"])
        command = [sys.executable, "-m", "barnabas", "mirror", "link", verb, "dr", "-b", target.bootstrap]
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5 + chance.random() * 3)  # when it is killed, not what is waited for
        if killed == "command":
            first.kill()
        else:
            victim = source if killed == "source" else target
            victim.kill()
            victim.start()
        waiting = threading.Timer(60, first.kill)
        waiting.start()
        first.wait(120)
        waiting.cancel()

        def again() -> bool:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
            done = "is mirroring; promote it first" in ran.stderr or "no link is called" in ran.stderr
            return ran.returncode == 0 or done

        until(again, f"the {verb} to be finished", 300)
        primary, copy = (source, target) if verb == "failback" else (target, source)
        wanted = [b"a", b"b", b"c", b"d", b"e"]
        for name in names:
            send(primary.bootstrap, name, ["e"])
        with Admin(copy.bootstrap) as admin:
            caught_up(admin, "dr", len(names), 5)
        for name in names:
            assert [row[3] for row in read(primary.bootstrap, name, 5)] == wanted
            assert read(copy.bootstrap, name, 5) == read(primary.bootstrap, name, 5)
            with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
                send(copy.bootstrap, name, ["no"])
    finally:
        source.kill()
        target.kill()
