"""rsyslog and syslog-ng with their Kafka modules, from Debian's packages, unpacked and not installed."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients.foreign import fetch_or_skip, made, need
from tests.frameworks.harness import MESSAGES, running, send_lines, values
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess, free_port

pytestmark = pytest.mark.soak

RSYSLOG: Final = """
module(load="imtcp")
module(load="omkafka")
input(type="imtcp" port="{port}" address="127.0.0.1")
template(name="plain" type="string" string="%msg:2:$%")
action(type="omkafka" broker=["{bootstrap}"] topic="rsyslog-out" template="plain" confParam=["compression.codec=lz4"])
"""
SYSLOG_NG: Final = """
@version: 3.38
source s {{ network(ip("127.0.0.1") transport("tcp") port({port})); }};
destination d {{ kafka-c(bootstrap-servers("{bootstrap}") topic("syslog-ng-out") message("$MSG")
                         config(queue.buffering.max.ms(50))); }};
log {{ source(s); destination(d); }};
"""


def debian(name: str, *packages: str) -> Path:
    def unpack(folder: Path) -> None:
        fetch_or_skip([need("apt-get"), "-qq", "download", *packages], folder, f"{name} cannot be fetched")
        for archive in folder.glob("*.deb"):
            subprocess.run([need("dpkg"), "-x", str(archive), str(folder)], check=True)

    return made(f"debian-{name}", unpack)


def test_rsyslog(broker: BrokerProcess, tmp_path: Path) -> None:
    root = debian(
        "rsyslog-kafka", "rsyslog", "rsyslog-kafka", "librdkafka1", "libestr0", "libfastjson4", "liblognorm5"
    )
    libraries = root / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    port, config = free_port(), tmp_path / "rsyslog.conf"
    config.write_text(RSYSLOG.format(port=port, bootstrap=broker.bootstrap))
    command = [str(next(root.rglob("sbin/rsyslogd"))), "-n", "-f", str(config), "-i", str(tmp_path / "pid")]
    command += ["-M", str(libraries / "rsyslog")]
    check(broker, "rsyslog-out", command, port, tmp_path, libraries)


def test_syslog_ng(broker: BrokerProcess, tmp_path: Path) -> None:
    needed = ("libivykis0", "libnet1", "libpcre3", "libjson-c5", "librdkafka1")
    root = debian("syslog-ng", "syslog-ng-core", "syslog-ng-mod-rdkafka", *needed)
    machine = f"{platform.machine()}-linux-gnu"
    port, config = free_port(), tmp_path / "syslog-ng.conf"
    config.write_text(SYSLOG_NG.format(port=port, bootstrap=broker.bootstrap))
    command = [str(root / "usr" / "sbin" / "syslog-ng"), "-F", "-f", str(config), "--no-caps"]
    command += ["--module-path", str(next((root / "usr" / "lib" / "syslog-ng").glob("[0-9]*")))]
    command += ["-R", str(tmp_path / "persist"), "-p", str(tmp_path / "pid"), "-c", str(tmp_path / "ctl")]
    libraries = [root / "usr" / "lib" / "syslog-ng", root / "usr" / "lib" / machine, root / "lib" / machine]
    check(broker, "syslog-ng-out", command, port, tmp_path, *libraries)


def check(
    broker: BrokerProcess, topic: str, command: list[str], port: int, folder: Path, *libraries: Path
) -> None:
    create_topic(broker.bootstrap, topic, 1)
    log = folder / "log"
    with running(command, folder, log, {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}):
        send_lines(port)
        values_read = values(broker.bootstrap, topic, len(MESSAGES))
    assert values_read == MESSAGES, log.read_text()
