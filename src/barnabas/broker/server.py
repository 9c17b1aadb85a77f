"""One broker: assembles storage, coordination, partitions, groups and listeners, and takes them down again.

Start: lock and recover the log dirs, open the znode tree, register, load partitions and groups, listen. Stop does
the same in reverse; the clean-shutdown marker is written last. Only main.py, `barnabas.testing` and tests import this
module: parts receive here what they need of each other.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.broker.api import telemetry
from barnabas.broker.api.announced import AnnouncedApis
from barnabas.broker.api.audit import AuditTopic, check_name
from barnabas.broker.api.authorizer import Authorizer
from barnabas.broker.api.conversion import Conversions
from barnabas.broker.api.dispatch import Dispatcher
from barnabas.broker.api.endpoints import Endpoints
from barnabas.broker.api.login import LoginGate
from barnabas.broker.api.quotas import KINDS as QUOTA_KINDS
from barnabas.broker.api.quotas import Quotas
from barnabas.broker.api.schema_checks import SchemaChecks
from barnabas.broker.api.services import Services
from barnabas.broker.cluster import loggers
from barnabas.broker.cluster.controller import Controller
from barnabas.broker.cluster.features import Features
from barnabas.broker.cluster.in_sync import InSync
from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.cluster.producer_ids import ProducerIds
from barnabas.broker.cluster.tokens import Tokens
from barnabas.broker.coordinators.groups import GroupCoordinator
from barnabas.broker.coordinators.shares import Shares
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.links.links import Links
from barnabas.broker.net.limits import ConnectionLimits
from barnabas.broker.net.listeners import Listeners, SocketBuffers
from barnabas.broker.net.peers import PeerLost, Peers
from barnabas.broker.net.turn import Turn
from barnabas.broker.partitions.cleaning import Cleaning
from barnabas.broker.partitions.key_indexing import KeyIndexing
from barnabas.broker.partitions.moving import Moving
from barnabas.broker.partitions.registry import Partitions
from barnabas.broker.partitions.replicating import Replication
from barnabas.broker.partitions.throttling import Throttles
from barnabas.config import broker_identity, broker_network, broker_security
from barnabas.config.option import ConfigError
from barnabas.cores.fetch import SessionCache
from barnabas.cores.znode_layout import sanitize
from barnabas.runtime.machine import Machine
from barnabas.runtime.timing import RequestTimes
from barnabas.security.between import BetweenBrokers
from barnabas.security.exposed import exposed, exposed_line, open_log_dirs
from barnabas.security.folder import FIRST_USERS, FolderError, read_users
from barnabas.security.sasl.listener import SaslListener
from barnabas.security.tls import TlsListener
from barnabas.storage.errors import StorageError
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition
    from barnabas.config.listeners import Listener as ConfiguredListener
    from barnabas.config.loader import BrokerConfig
    from barnabas.config.option import Option

log = logging.getLogger("barnabas.server")

CREATE_VERSION: Final = 5
CREATE_TIMEOUT_MS: Final = 15_000


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _socket_buffers(config: BrokerConfig) -> SocketBuffers:
    """The buffer sizes that the configuration sets explicitly; -1 leaves the choice to the system, as in Kafka."""

    def chosen(option: Option[int]) -> int | None:
        value = config.get(option)
        return value if config.is_set(option) and value > 0 else None

    return SocketBuffers(
        chosen(broker_network.SOCKET_SEND_BUFFER_BYTES), chosen(broker_network.SOCKET_RECEIVE_BUFFER_BYTES)
    )


def _room_bytes_max(config: BrokerConfig) -> int:
    """queued.max.request.bytes, at least as much as one request may have; 0 for no limit."""
    room = config.get(broker_network.QUEUED_MAX_REQUEST_BYTES)
    return max(room, config.get(broker_network.SOCKET_REQUEST_MAX_BYTES)) if room > 0 else 0


def _joined(more: Mapping[str, str], texts: dict[str, str]) -> dict[str, str]:
    """`texts`, with missing entries taken from `more`."""
    return {**more, **texts}


class StartError(Exception):
    """The broker cannot start; the message is one line that says why and what to do."""


class BrokerServer:
    """See the module. `await start()`, `await stop()`; `services` is available after the start."""

    services: Services
    dispatcher: Dispatcher
    _between: BetweenBrokers

    def __init__(
        self,
        config: BrokerConfig,
        *,
        machine: Machine | None = None,
        on_fatal: Callable[[], None] | None = None,
        ended: asyncio.Future[int] | None = None,
    ) -> None:
        """on_fatal: called when the broker cannot continue and has to be stopped. ended: done when the broker is to end, so
        that it does not wait for ZooKeeper any longer."""
        self.config = config
        self.machine = machine or Machine()
        self.clock = self.machine.clock
        self.on_fatal = on_fatal or (lambda: None)
        self._ended = ended
        self.ports: dict[str, int] = {}
        """Listener -> the port that it is bound to."""
        self._housekeeping: Housekeeping | None = None
        self.cleaning: Cleaning | None = None
        self._key_indexing: KeyIndexing | None = None
        self._stopping = False

    # --- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the broker; returns once connections are accepted. Raises StartError."""
        self._between = self._new_between()
        self._check_audit()
        for path, secret in exposed(self.config).items():
            log.warning("a file with secrets is open to others", extra={"reason": exposed_line(path, secret)})
        for reason in open_log_dirs(self.config):
            log.warning("a log dir is open to others", extra={"reason": reason})
        turn = Turn(asyncio.get_running_loop())
        partitions = Partitions(turn, self.config, self.machine)
        partitions.on_all_offline = self._all_offline
        try:
            partitions.lock()
            controller = await Controller.open(self.config, self.machine, partitions, self._ended)
            await partitions.open(controller.image, controller.node_id, controller.configs.log_config)
        except (StorageError, OSError) as error:
            partitions.close()
            raise StartError(str(error)) from error
        self.services = services = self._assemble(turn, controller, partitions)
        self.dispatcher = Dispatcher(services)
        services.groups.on_effect = services.shares.carry_out
        partitions.check_transaction = services.transactions.check
        partitions.in_sync_changed = services.in_sync.change_soon
        partitions.broker_epoch = controller.epoch_of
        services.replication.broker_epoch = lambda: controller.broker_epoch
        partitions.on_roles_changed = self._on_roles_changed
        controller.topics.create_elsewhere = self._create_elsewhere
        controller.on_topics_deleted = self._on_topics_deleted
        controller.on_configs_changed = self._on_configs_changed
        for kind, entity in (("clients", ""), ("brokers", ""), (telemetry.KIND, "")):
            self._on_configs_changed(kind, entity)
        try:
            self._listen()
        except StartError:
            await self.stop()
            raise
        rack = self.config.get(broker_identity.BROKER_RACK)
        try:
            announced = services.endpoints.to_register(self.ports, self.machine.address_towards)
            await controller.register(announced, rack)
        except OSError as error:
            await self.stop()
            raise StartError(str(error)) from error
        services.in_sync.start()
        try:
            await self._add_users()
            await self._seal_passwords()
        except StartError:
            await self.stop()
            raise
        await services.groups.load_existing()
        await services.shares.load_existing()
        await services.transactions.load_existing()  # after the groups: it may have markers for their offsets
        await services.links.start()
        services.moving.start()
        services.listeners.serve(self.dispatcher)
        self._housekeeping = Housekeeping(services)
        self._housekeeping.start()
        self.cleaning = Cleaning(self.config, partitions.logs, self.clock)
        self.cleaning.start()
        self._key_indexing = KeyIndexing(partitions.logs, self.clock)
        self._key_indexing.start()

    def _assemble(self, turn: Turn, controller: Controller, partitions: Partitions) -> Services:
        """Create the parts that handlers use, giving each what it needs of the others."""
        config, clock, loop = self.config, self.clock, turn.loop
        endpoints = Endpoints(config, controller.node_id, lambda: controller.image.brokers)
        peers = Peers(controller.node_id, endpoints.between_brokers, self.machine.connect, self._between)
        quotas = Quotas(config, clock)
        groups = GroupCoordinator(config, loop, clock, controller, partitions)
        producer_ids = ProducerIds(lambda: controller.tree, controller.node_id)
        conversions = Conversions()
        times = RequestTimes()
        pushed_metrics = telemetry.Telemetry(config, clock)
        listeners = Listeners(
            turn,
            ConnectionLimits(config, quotas.core, clock),
            config.get(broker_network.SOCKET_REQUEST_MAX_BYTES),
            _room_bytes_max(config),
            _socket_buffers(config),
            self.machine.new_socket,
        )
        return Services(
            config=config,
            loop=loop,
            clock=clock,
            entropy=self.machine.entropy,
            controller=controller,
            partitions=partitions,
            moving=Moving(config, partitions.logs, clock),
            groups=groups,
            shares=Shares(config, loop, clock, controller, partitions, groups, peers),
            transactions=Transactions(
                config, loop, clock, controller, partitions, groups, producer_ids, peers
            ),
            producer_ids=producer_ids,
            fetch_sessions=SessionCache(config.get(broker_network.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS)),
            features=Features(config),
            quotas=quotas,
            conversions=conversions,
            schema_checks=SchemaChecks(config, clock, conversions),
            telemetry=pushed_metrics,
            apis=AnnouncedApis(pushed_metrics),
            endpoints=endpoints,
            peers=peers,
            replication=Replication(
                config,
                clock,
                controller.node_id,
                partitions,
                peers,
                Throttles(config, clock, controller.node_id),
            ),
            in_sync=InSync(config, controller, partitions),
            links=Links(
                config, clock, controller, partitions, peers, groups, producer_ids, self.machine.dial
            ),
            listeners=listeners,
            tokens=Tokens(config, controller, clock, self.machine.entropy),
            authorizer=self._authorizer(controller, listeners, partitions, peers),
            fetch_bytes_max=config.get(broker_network.FETCH_MAX_BYTES),
            times=times,
            consumer_fetches=times.of("FetchConsumer"),
            follower_fetches=times.of("FetchFollower"),
        )

    def _new_between(self) -> BetweenBrokers:
        """How to connect to other brokers. Raises StartError."""
        try:
            return BetweenBrokers(self.config)
        except ConfigError as error:
            raise StartError(f"the listener for brokers: {error}") from error

    def _check_audit(self) -> None:
        """Raises StartError if the audit topic is configured wrongly."""
        try:
            check_name(self.config)
        except ConfigError as error:
            raise StartError(str(error)) from None
        has_authorizer = self.config.get(broker_security.AUTHORIZER_CLASS_NAME)
        if self.config.get(broker_security.AUDIT_TOPIC) and not has_authorizer:
            log.warning("audit.topic has no effect without authorizer.class.name: nothing is decided")

    def _authorizer(
        self, controller: Controller, listeners: Listeners, partitions: Partitions, peers: Peers
    ) -> Authorizer | None:
        """The authorizer; None unless the configuration asks for one."""
        if not self.config.get(broker_security.AUTHORIZER_CLASS_NAME):
            return None
        authorizer = Authorizer(self.config, lambda: listeners.connections)
        acls = controller.image.acls
        authorizer.set_rules(acls.items())
        controller.on_acls_changed = lambda resources: authorizer.set_rules(
            [(resource, acls.get(resource, frozenset())) for resource in resources]
        )
        topic = self.config.get(broker_security.AUDIT_TOPIC)
        if topic:
            authorizer.topic = AuditTopic(topic, self.config, self.clock, controller, partitions, peers)
        return authorizer

    def _listen(self) -> None:
        backlog = self.config.get(broker_network.SOCKET_LISTEN_BACKLOG_SIZE)
        for listener in self.config.listeners:
            self._secure(listener)
            host = listener.host or "0.0.0.0"
            try:
                port = self.services.listeners.listen(host, listener.port, listener.name, backlog)
            except OSError as error:
                hint = "stop what listens there or choose" if error.errno == errno.EADDRINUSE else "choose"
                raise StartError(
                    f"cannot listen on {host}:{listener.port}: {error.strerror or error}; "
                    f"{hint} another address with --listen HOST:PORT"
                ) from error
            self.ports[listener.name] = port

    def _secure(self, listener: ConfiguredListener) -> None:
        """Prepare the TLS and logins of a listener. Raises StartError."""
        listeners = self.services.listeners
        try:
            if listener.security_protocol in ("SSL", "SASL_SSL"):
                listeners.tls[listener.name] = TlsListener(self.config, listener.name)
            if listener.security_protocol.startswith("SASL"):
                listeners.gates[listener.name] = self._gate(listener.name)
        except ConfigError as error:
            raise StartError(f"listener {listener}: {error}") from error

    async def _add_users(self) -> None:
        """Add users that the cluster lacks, from scram.users.file and from kafka-storage. Raises StartError."""
        path = self.config.get(broker_security.SCRAM_USERS_FILE)
        if path is not None:
            await self._add_users_of(Path(path))
        for log_dir in self.config.log_dirs:
            first = log_dir / FIRST_USERS
            if first.exists():  # only once: a user that is deleted later stays deleted
                await self._add_users_of(first)
                first.unlink()

    async def _seal_passwords(self) -> None:
        """Encrypt the passwords that the tree contains in plain text, or encrypted with an old secret. Raises StartError."""
        try:
            await self.services.controller.options.seal_passwords(self.services.controller.node_id)
        except (ConfigError, ApiError) as error:
            raise StartError(f"password.encoder.secret: {error}") from error

    async def _add_users_of(self, path: Path) -> None:
        controller = self.services.controller
        try:
            for user, texts in read_users(path).items():
                known = controller.image.config("users", sanitize(user))
                if not texts.keys() <= known.keys():
                    await controller.options.alter_credentials(user, partial(_joined, texts))
        except (FolderError, ApiError) as error:
            raise StartError(f"users of {path}: {error}") from error

    def _gate(self, listener: str) -> LoginGate:
        """The login gate of a SASL listener. Raises ConfigError."""
        image = self.services.image
        sasl = SaslListener(
            self.config,
            listener,
            lambda: image.configs,
            lambda: image.secret,
            self.clock,
            self.services.tokens.password,
        )
        return LoginGate(sasl, lambda: self.dispatcher, self.clock)

    async def stop(self) -> None:
        """Stop accepting, finish pending answers, close every log cleanly.

        A step that fails is logged, and the others are still taken: the logs are closed and their dirs unlocked, whatever
        happened before.
        """
        self._stopping = True
        services = self.services
        failed: list[str] = []
        for name, step in self._stopping_steps():
            try:
                done = step()
                if done is not None:
                    await done
            except Exception:
                failed.append(name)
                log.exception(
                    "a step of the broker's stop met a bug; the others are taken", extra={"step": name}
                )
        try:
            await services.loop.run_in_executor(None, services.partitions.close)
        except Exception:
            failed.append("logs")
            log.exception("the logs were not all closed; the next start recovers them")
        log.info("stopped", extra={"failed": failed} if failed else {})

    def _stopping_steps(self) -> Iterator[tuple[str, Callable[[], Awaitable[None] | None]]]:
        """(name, function) for what is stopped before the logs are closed, in this order."""
        services = self.services
        if services.authorizer is not None and services.authorizer.topic is not None:
            yield "audit topic", services.authorizer.topic.close  # while this broker leads partitions
        # Replication stops first, so that this broker is not taken into in-sync sets again after it has left them.
        yield "links", services.links.close
        yield "replication", services.replication.close
        yield "leadership", services.controller.hand_over
        yield "in-sync replicas", services.in_sync.close
        if self._key_indexing is not None:
            yield "key indexes", self._key_indexing.stop
        if self.cleaning is not None:
            yield "cleaning", self.cleaning.stop
        if self._housekeeping is not None:
            yield "periodic jobs", self._housekeeping.stop
        yield "moves", services.moving.stop
        yield "requests", self.dispatcher.close
        yield "listeners", services.listeners.close
        yield "conversions", services.conversions.close
        yield "schema checks", services.schema_checks.close
        yield "transactions", services.transactions.close
        yield "groups", services.groups.close
        yield "share groups", services.shares.close
        yield "other brokers", services.peers.close
        yield "metadata", services.controller.close

    def _all_offline(self) -> None:
        """No log dir is left: the broker ends, as in Kafka, so that its supervisor notices."""
        if not self._stopping:
            log.critical("every log dir is offline; the broker ends. The lines above say why each one is")
            self.on_fatal()

    def ready_line(self) -> str:
        """What `barnabas start` prints once connections are accepted."""
        addresses = ", ".join(
            _address(listener.host or "0.0.0.0", self.ports[listener.name])
            for listener in self.config.listeners
        )
        dirs = ", ".join(str(log_dir) for log_dir in self.config.log_dirs)
        return f"ready on {addresses} (node {self.services.controller.node_id}, data in {dirs})"

    def _on_roles_changed(self, changed: Sequence[Partition]) -> None:
        """Partitions have become leaders or followers: update fetchers and coordinators."""
        services = self.services
        services.replication.roles_changed(changed)
        services.links.roles_changed(changed)
        services.shares.roles_changed(changed)
        topics = {partition.topic for partition in changed}
        for topic, coordinator in (
            (OFFSETS_TOPIC, services.groups.runtime),
            (TRANSACTION_TOPIC, services.transactions.runtime),
            (SHARE_STATE_TOPIC, services.shares.states.runtime),
        ):
            if topic in topics:
                coordinator.roles_changed()

    async def _create_elsewhere(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str | None]
    ) -> None:
        """Ask the controller to create a topic. Raises ApiError."""
        rows = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=rows
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS)
        try:
            answer = await self.services.peers.call(
                self.services.image.controller_id, request, CREATE_VERSION, CREATE_TIMEOUT_MS / 1000
            )
        except PeerLost as error:
            raise ApiError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"the controller cannot be reached: {error}"
            ) from error
        for row in answer.topics:
            if row.error_code and row.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise ApiError(ErrorCode(row.error_code), row.error_message or "")

    def address_for_services(self, protocol: str) -> str:
        """Where services in this process reach the broker. Raises StartError if no listener has this protocol."""
        for listener in self.config.listeners:
            if listener.security_protocol == protocol:
                host = listener.host or "127.0.0.1"
                return _address("127.0.0.1" if host in ("0.0.0.0", "::") else host, self.ports[listener.name])
        raise StartError(
            f"services of --with connect to a listener with {protocol}, and the broker has none; name a file of client "
            "properties with which they connect: --services-client FILE, for example DIR/clients/USER/librdkafka.properties "
            "of `barnabas security init DIR --user USER`"
        )

    def _on_topics_deleted(self, topics: frozenset[str]) -> None:
        self.services.groups.on_topics_deleted(topics)
        self.services.shares.on_topics_deleted(topics)
        self.services.transactions.on_topics_deleted(topics)

    def _on_configs_changed(self, kind: str, entity: str) -> None:
        services = self.services
        services.groups.on_configs_changed(kind, entity)
        services.links.config_changed(kind, entity)
        services.shares.on_configs_changed(kind, entity)
        if kind in QUOTA_KINDS:
            services.quotas.configure(services.image.configs)
        if kind in QUOTA_KINDS or kind == loggers.KIND:
            self.dispatcher.enforce(services.quotas)
        if kind == telemetry.KIND:
            services.telemetry.configure(services.image.configs)
        if kind in ("brokers", "topics"):
            services.replication.throttles.configure(services.image.configs)
        if kind == "brokers":
            services.transactions.configure()
            services.listeners.limits.configure()
            services.listeners.refresh_tls()
            services.listeners.limit_connections(self.config.get(broker_network.MAX_CONNECTIONS))
