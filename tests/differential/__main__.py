"""Compares and prints; exit code 1 when something differs that is not accepted. See the package."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.brokers import ApacheKafka, Barnabas, Broker

from tests.differential.comparison import Comparison, Finding, accepted, is_accepted
from tests.differential.peers import Peer


@contextmanager
def running(kind: type[Broker], address: str | None, folder: Path) -> Iterator[Peer]:
    """A broker of this kind, started now unless `address` names one."""
    if address:
        yield Peer(address)
        return
    broker = kind(folder)
    broker.start()
    try:
        yield Peer(f"127.0.0.1:{broker.port}")
    finally:
        broker.stop()


def report(findings: list[Finding]) -> None:
    """Each difference in three lines."""
    for finding in sorted(findings, key=lambda f: (f.api, f.difference.path)):
        versions = ",".join(map(str, sorted(finding.versions)))
        print(f"{finding.api} v{versions}: {finding.difference.path} ({finding.count} times)")
        print(f"    Kafka {finding.difference.kafka}, ours {finding.difference.ours}")
        print(f"    shown by v{finding.version} {finding.request}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=5, help="requests for each API and version")
    parser.add_argument("--api", help="only this API, by name")
    parser.add_argument("--kafka", help="HOST:PORT of an Apache Kafka that is running")
    parser.add_argument("--ours", help="HOST:PORT of a Barnabas that is running")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(running(ApacheKafka, options.kafka, folder))
        ours = stack.enter_context(running(Barnabas, options.ours, folder))
        for peer in (kafka, ours):
            peer.prepare()
        comparison = Comparison(kafka, ours)
        comparison.run(options.seed, options.cases, options.api)
    rows = accepted()
    findings = list(comparison.findings.values())
    news = [finding for finding in findings if not is_accepted(finding, rows)]
    report(news)
    print(
        f"{comparison.asked} requests: {len(findings) - len(news)} differences accepted, {len(news)} not accepted"
    )
    return 1 if news else 0


if __name__ == "__main__":
    sys.exit(main())
