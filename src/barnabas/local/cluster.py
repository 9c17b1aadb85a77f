"""What `barnabas cluster start` keeps in its folder, and how the cluster's processes are started and stopped.

DIR/cluster.json                    the settings of the last start
DIR/zookeeper-1/zoo.cfg, data/, zookeeper.log
DIR/broker-1/server.properties, log/, broker.log
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from barnabas.local import zookeeper
from barnabas.local.processes import Member, Started, running, stop
from barnabas.terminal.errors import CliError

SETTINGS_FILE: Final = "cluster.json"
BROKERS_MAX: Final = 20
PORT_MAX: Final = 65_535
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
REPLICAS_MAX: Final = 3
SERVER_PROPERTIES: Final = """\
# Written by each start of the cluster; options of your own go to `barnabas cluster start -o NAME=VALUE`.
broker.id={number}
listeners=PLAINTEXT://localhost:{port}
log.dirs={log}
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=6000
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={min_in_sync}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={min_in_sync}
default.replication.factor={replicas}
min.insync.replicas={min_in_sync}
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `cluster start`."""

    brokers: int
    port: int
    zookeeper_port: int
    zookeepers: int = 1
    racks: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises CliError."""
        if not 1 <= self.brokers <= BROKERS_MAX:
            raise CliError(f"--brokers {self.brokers}: 1 to {BROKERS_MAX} are possible")
        if self.zookeepers not in (1, 3, 5):
            raise CliError(f"--zookeepers {self.zookeepers}: an ensemble has 1, 3 or 5 servers")
        if self.racks and len(self.racks) != self.brokers:
            raise CliError(
                f"--racks names {len(self.racks)} racks for {self.brokers} brokers; name one for each, for example "
                f"--racks {','.join('abcdefghijklmnopqrst'[: self.brokers])}"
            )
        for option, ports in (("--port", self.broker_ports), ("--zookeeper-port", self.zookeeper_ports)):
            if not 1 <= ports[0] <= ports[-1] <= PORT_MAX:
                raise CliError(f"{option} {ports[0]}: ports {ports[0]} to {ports[-1]} do not all exist")
        both = sorted(set(self.broker_ports) & set(self.zookeeper_ports))
        if both:
            raise CliError(
                f"port {both[0]} would be a broker's and ZooKeeper's; choose another --zookeeper-port"
            )

    @property
    def broker_ports(self) -> range:
        """Of broker 1, 2 and so on."""
        return range(self.port, self.port + self.brokers)

    @property
    def zookeeper_ports(self) -> range:
        """Of ZooKeeper 1, 2 and so on."""
        return range(self.zookeeper_port, self.zookeeper_port + self.zookeepers)

    @property
    def zookeeper_connect(self) -> str:
        """As the option of that name."""
        return ",".join(f"{zookeeper.HOST}:{port}" for port in self.zookeeper_ports)

    @property
    def bootstrap(self) -> str:
        """For clients."""
        return ",".join(f"localhost:{port}" for port in self.broker_ports)


def read_settings(folder: Path) -> Settings:
    """Raises CliError when no cluster was started over this folder."""
    path = folder / SETTINGS_FILE
    try:
        fields = json.loads(path.read_text("utf-8"))
        return Settings(**{**fields, "racks": tuple(fields["racks"])})
    except FileNotFoundError:
        raise CliError(
            f"{folder} is no cluster's folder; `barnabas cluster start --data {folder}` makes one"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CliError(f"{path} cannot be read: {error}; `barnabas cluster start` writes it again") from None


class LocalCluster:
    """The processes over one folder."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self.zookeepers = zookeeper.members(folder, settings.zookeepers)
        self.brokers = [
            Member(f"broker {number}", place / "server.properties", place / "broker.log")
            for number, place in (
                (number, folder / f"broker-{number}") for number in range(1, settings.brokers + 1)
            )
        ]

    def prepare(self) -> None:
        """Write every configuration. Raises CliError, OSError."""
        settings = self.settings
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / SETTINGS_FILE).write_text(json.dumps(asdict(settings), indent=2) + "\n", "utf-8")
        zookeeper.write_configs(self.zookeepers, settings.zookeeper_port)
        for number, member in enumerate(self.brokers, 1):
            member.config.parent.mkdir(exist_ok=True)
            member.config.write_text(self._properties(number), "utf-8")

    def _properties(self, number: int) -> str:
        settings = self.settings
        replicas = min(REPLICAS_MAX, settings.brokers)
        text = SERVER_PROPERTIES.format(
            number=number,
            port=settings.port + number - 1,
            log=self.folder / f"broker-{number}" / "log",
            zookeeper=settings.zookeeper_connect,
            replicas=replicas,
            min_in_sync=max(1, replicas - 1),
        )
        if settings.racks:
            text += f"broker.rack={settings.racks[number - 1]}\n"
        return text + "".join(f"{name}={value}\n" for name, value in settings.options.items())

    def start(self) -> None:
        """Start everything and wait until all serve. Raises CliError; nothing is left running then."""
        zookeeper.require_free([*self.settings.zookeeper_ports, *self.settings.broker_ports])
        started: list[Started] = []
        try:
            zookeeper.start(self.zookeepers, self.settings.zookeeper_port)
            started = [self._launch(member) for member in self.brokers]
            for broker in started:
                broker.await_ready(Started.says_ready, START_TIMEOUT_S)
        except BaseException:
            for _ in self.stop():
                pass
            raise

    def start_broker(self, number: int) -> None:
        """Start one broker and wait until it serves. Raises CliError."""
        member = self.broker(number)
        if member.name in running([member]):
            raise CliError(f"{member.name} runs already")
        self._launch(member).await_ready(Started.says_ready, START_TIMEOUT_S)

    def _launch(self, member: Member) -> Started:
        return Started(member, [sys.executable, "-m", "barnabas", "start", "--config", str(member.config)])

    def broker(self, number: int) -> Member:
        """Raises CliError when there is no broker with this number."""
        if not 1 <= number <= len(self.brokers):
            raise CliError(f"there is no broker {number}: this cluster has brokers 1 to {len(self.brokers)}")
        return self.brokers[number - 1]

    def stop(self) -> Iterator[str]:
        """Stop the brokers one after the other, so that each can hand over its partitions, then ZooKeeper; how each
        ended.
        """
        for members in (self.brokers, self.zookeepers):
            for member in members:
                pid = running([member]).get(member.name)
                if pid is not None:
                    yield f"{member.name} {stop(member, pid, STOP_TIMEOUT_S)}"

    def running(self) -> dict[str, int]:
        """Process ids by name."""
        return running([*self.zookeepers, *self.brokers])


def options_from(items: Sequence[str]) -> dict[str, str]:
    """`-o NAME=VALUE`, several. Raises CliError."""
    options = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise CliError(f"-o {item!r} is not NAME=VALUE, for example -o min.insync.replicas=2")
        options[name.strip()] = value.strip()
    return options
