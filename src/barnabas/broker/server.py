"""One broker: assembles storage, coordination, partitions, groups and listeners, and takes them down again.

Start: lock and recover the log dirs, open the znode tree, register, load partitions and groups, listen. Stop is
the same backwards; the clean-shutdown marker is written last.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker import loggers, telemetry
from barnabas.broker.cleaning import Cleaning
from barnabas.broker.connection_limits import ConnectionLimits
from barnabas.broker.controller import Controller
from barnabas.broker.conversion import Conversions
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.features import Features
from barnabas.broker.group_coordinator import GroupCoordinator
from barnabas.broker.group_limits import limits_of_all
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.moving import Moving
from barnabas.broker.partitions import Partitions
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.quotas import KINDS as QUOTA_KINDS
from barnabas.broker.quotas import Quotas
from barnabas.broker.shard import Shard
from barnabas.broker.shares import Shares
from barnabas.config import broker_identity, broker_log, broker_network
from barnabas.cores.fetch import SessionCache
from barnabas.cores.znode_layout import Endpoint as RegisteredEndpoint
from barnabas.runtime.clock import Clock, SystemClock
from barnabas.storage.errors import StorageError
from barnabas.wire.apis import APIS, OWN_APIS, Api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersion

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection
    from barnabas.broker.controller import Charge
    from barnabas.config.listeners import Listener
    from barnabas.config.loader import BrokerConfig
    from barnabas.cores.cluster_image import ClusterImage

log = logging.getLogger("barnabas.server")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class StartError(Exception):
    """The broker cannot start; one line that says why and what to do."""


class Endpoint(NamedTuple):
    """A broker's address as one connection is told it."""

    node_id: int
    host: str
    port: int
    rack: str | None


def _range_of(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1])


class BrokerServer:
    """See the module. `await start()`, `await stop()`."""

    loop: asyncio.AbstractEventLoop
    shard: Shard
    controller: Controller
    partitions: Partitions
    groups: GroupCoordinator
    shares: Shares
    producer_ids: ProducerIds
    moving: Moving

    def __init__(
        self, config: BrokerConfig, *, clock: Clock | None = None, on_fatal: Callable[[], None] | None = None
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.on_fatal = on_fatal or (lambda: None)
        self.ports: dict[str, int] = {}
        self.fetch_bytes_max = config.get(broker_network.FETCH_MAX_BYTES)
        self.auto_create_topics = config.get(broker_log.AUTO_CREATE_TOPICS_ENABLE)
        self.fetch_sessions = SessionCache(
            config.get(broker_network.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS)
        )
        self.conversions = Conversions()
        self.telemetry = telemetry.Telemetry(config, self.clock)
        self._api_ranges = [_range_of(api) for api in APIS]
        self._api_ranges_untold = [one for one in self._api_ranges if one.api_key not in telemetry.APIS]
        self._own_api_ranges = [_range_of(api) for api in OWN_APIS]
        self.features = Features(config)
        self.quotas = Quotas(config)
        self._advertised: dict[str, Listener] = {one.name: one for one in config.advertised_listeners}
        self._housekeeping: Housekeeping | None = None
        self._cleaning: Cleaning | None = None
        self._stopping = False

    # --- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises StartError."""
        self.loop = asyncio.get_running_loop()
        self.shard = Shard(self.loop, self.clock, self.config.get(broker_network.SOCKET_REQUEST_MAX_BYTES))
        self.shard.limits = ConnectionLimits(self.config, self.quotas.core, self.clock)
        self.shard.dispatcher = Dispatcher(self)
        self.partitions = Partitions(self.shard, self.config)
        self.partitions.on_all_offline = self._all_offline
        self.shard.on_write_failed = self.partitions.write_failed
        try:
            self.partitions.lock()
            self.controller = await Controller.open(self.config, self.clock, self.partitions)
            await self.partitions.open(
                self.controller.image, self.controller.node_id, self.controller.configs.log_config
            )
        except (StorageError, OSError) as error:
            self.partitions.close()
            raise StartError(str(error)) from error
        self.producer_ids = ProducerIds(self.controller.tree, self.controller.node_id)
        self.groups = GroupCoordinator(self, limits_of_all(self.config))
        self.shares = Shares(self)
        self.groups.on_effect = self.shares.carry_out
        self.controller.on_topics_deleted = self.groups.on_topics_deleted
        self.controller.on_configs_changed = self._on_configs_changed
        self._on_configs_changed("clients", "")
        self._on_configs_changed("brokers", "")
        self._on_configs_changed(telemetry.KIND, "")
        try:
            self._listen()
        except StartError:
            await self.stop()
            raise
        await self.controller.register(
            self._registered_endpoints(), self.config.get(broker_identity.BROKER_RACK)
        )
        self.groups.load_existing()
        self.shares.load_existing()
        self.moving = Moving(self.config, self.partitions.logs, self.clock)
        self.moving.start()
        self.shard.serve()
        self._housekeeping = Housekeeping(self)
        self._housekeeping.start()
        self._cleaning = Cleaning(self.config, self.partitions.logs, self.clock)
        self._cleaning.start()

    def _listen(self) -> None:
        backlog = self.config.get(broker_network.SOCKET_LISTEN_BACKLOG_SIZE)
        for listener in self.config.listeners:
            if listener.security_protocol != "PLAINTEXT":
                raise StartError(
                    f"listener {listener} wants {listener.security_protocol}; this version serves PLAINTEXT only"
                )
            host = listener.host or "0.0.0.0"
            try:
                self.ports[listener.name] = self.shard.listen(host, listener.port, listener.name, backlog)
            except OSError as error:
                hint = "stop what listens there or choose" if error.errno == errno.EADDRINUSE else "choose"
                raise StartError(
                    f"cannot listen on {host}:{listener.port}: {error.strerror or error}; "
                    f"{hint} another address with --listen HOST:PORT"
                ) from error

    async def stop(self) -> None:
        """Stop accepting, answer what is answered, close every log cleanly."""
        self._stopping = True
        if self._cleaning is not None:
            await self._cleaning.stop()
        if self._housekeeping is not None:
            await self._housekeeping.stop()
            await self.moving.stop()
        await self.shard.dispatcher.close()
        self.shard.close()
        self.conversions.close()
        self.groups.close()
        self.shares.close()
        await self.controller.close()
        await self.loop.run_in_executor(None, self.partitions.close)
        log.info("stopped")

    def _all_offline(self) -> None:
        """No log dir is left: as Kafka does, the broker ends, so that whoever watches over it takes notice."""
        if not self._stopping:
            log.critical("every log dir is offline; the broker ends. Mend the disk and start it again")
            self.on_fatal()

    def ready_line(self) -> str:
        """What `barnabas start` prints once connections are accepted."""
        addresses = ", ".join(
            _address(listener.host or "0.0.0.0", self.ports[listener.name])
            for listener in self.config.listeners
        )
        dirs = ", ".join(str(one) for one in self.config.log_dirs)
        return f"ready on {addresses} (node {self.controller.node_id}, data in {dirs})"

    def _on_configs_changed(self, kind: str, entity: str) -> None:
        self.groups.on_configs_changed(kind, entity)
        self.shares.on_configs_changed(kind, entity)
        if kind in QUOTA_KINDS:
            self.quotas.configure(self.image.configs)
        if kind in QUOTA_KINDS or kind == loggers.KIND:
            self.shard.dispatcher.enforce(self.quotas)
        if kind == telemetry.KIND:
            self.telemetry.configure(self.image.configs)
        if kind == "brokers":
            self.shard.limits.configure()
            self.shard.limit_connections(self.config.get(broker_network.MAX_CONNECTIONS))

    # --- what handlers ask -----------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def cluster_id(self) -> str:
        return self.controller.cluster_id

    @property
    def controller_id(self) -> int:
        return self.controller.node_id

    def api_ranges(self, software: tuple[str, str] = ("", ""), *, own: bool = False) -> list[ApiVersion]:
        """What is announced to a client; `own`: with the APIs that only our own client should see."""
        told = self._api_ranges if self.telemetry.is_announced_to(software) else self._api_ranges_untold
        return told + self._own_api_ranges if own else told

    def api_ranges_of(self, key: int) -> list[ApiVersion]:
        return [one for one in self._api_ranges if one.api_key == key]

    def fresh_session_id(self) -> int:
        return secrets.randbelow((1 << 31) - 1) + 1

    def fresh_uuid(self) -> str:
        return str(uuid.uuid4())

    def endpoint_for(self, connection: Connection) -> Endpoint:
        """This broker's address for one peer: what is advertised, else the address it connected to."""
        advertised = self._advertised.get(connection.listener)
        rack = self.config.get(broker_identity.BROKER_RACK)
        if advertised is not None:
            return Endpoint(self.controller.node_id, advertised.host, advertised.port, rack)
        return Endpoint(self.controller.node_id, connection.local_host, connection.local_port, rack)

    def endpoints_for(self, connection: Connection) -> list[Endpoint]:
        """Every broker of the cluster, as a peer should be told it."""
        return [self.endpoint_for(connection)]

    def _registered_endpoints(self) -> list[RegisteredEndpoint]:
        found = []
        for listener in self.config.listeners:
            told = self._advertised.get(listener.name)
            host, port = (told.host, told.port) if told else (listener.host, self.ports[listener.name])
            found.append(
                RegisteredEndpoint(listener.name, host or "localhost", port, listener.security_protocol)
            )
        return found

    def name_error(self, name: str) -> ErrorCode | None:
        """INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
        return self.controller.name_error(name)

    async def auto_create(self, name: str, charge: Charge) -> None:
        """Create a topic because a client asked about it. Raises ApiError."""
        await self.controller.auto_create(name, charge)

    async def ensure_internal_topic(self, name: str) -> int:
        """Create an internal topic unless it is there; returns its partition count. Raises ApiError."""
        return await self.controller.ensure_internal_topic(name)
