"""Redis. The options are those of redis-kafka-connect, and of the older connector of jcustenborder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.connect.connectors import SinkConnector, SinkContext
from barnabas.connect.converters.simple import java_text
from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.kinds.talking import plain_json
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import SinkRecord

if TYPE_CHECKING:
    import redis

CHECK_S: Final = 5.0
COMMANDS = ("SET", "HSET", "XADD", "LPUSH", "RPUSH", "SADD", "ZADD", "JSONSET")


class RedisSink(SinkConnector):
    """Records as values, hashes, or elements of streams, lists and sets."""

    doc = "Stores records in Redis: values, hashes, streams, lists, sets."
    aliases = (
        "com.redis.kafka.connect.RedisSinkConnector",
        "com.github.jcustenborder.kafka.connect.redis.RedisSinkConnector",
    )
    options = (
        ConnectorOption(
            "redis.uri",
            default="redis://localhost:6379",
            importance=Importance.HIGH,
            doc="redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// with TLS",
        ),
        ConnectorOption("redis.hosts", default="", doc="HOST:PORT, in place of redis.uri"),
        ConnectorOption("redis.password", Type.PASSWORD, None, doc="The password"),
        ConnectorOption(
            "redis.command",
            default="SET",
            importance=Importance.HIGH,
            doc=f"One of {', '.join(COMMANDS)}",
            choices=COMMANDS,
        ),
        ConnectorOption(
            "redis.key",
            default="",
            doc="The key of streams, lists and sets; ${topic} is the topic. For the others, what precedes a record's key",
        ),
        ConnectorOption(
            "redis.ttl.s", Type.LONG, 0, doc="How long values and hashes live; 0: for ever", lo=0
        ),
    )

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._redis = _client(config, 30.0)
        self._asked(self._redis.ping)

    @classmethod
    def check(cls, config: Config) -> dict[str, str]:
        """Also asks the server."""
        try:
            client = _client(config, CHECK_S)
            try:
                cls._asked(client.ping)
            finally:
                client.close()
        except ConnectError as error:
            return {getattr(error, "option", "") or "redis.uri": str(error)}
        return {}

    @staticmethod
    def _asked(work: Any) -> Any:
        """Raises RetriableError if Redis does not answer, ConnectError if it refuses."""
        import redis

        try:
            return work()
        except redis.AuthenticationError as error:
            raise ConnectError(
                f"Redis refuses the login: {error}; see redis.uri and redis.password"
            ) from error
        except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.BusyLoadingError) as error:
            raise RetriableError(f"Redis does not answer: {error}") from error
        except redis.RedisError as error:
            raise ConnectError(f"Redis refuses: {error}") from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector."""
        pipe = self._redis.pipeline(transaction=False)
        sent = 0
        for record in records:
            try:
                self._add(pipe, record)
                sent += 1
            except DataError as error:
                self.context.report(record, error)
        if sent:
            self._asked(pipe.execute)

    def _add(self, pipe: Any, record: SinkRecord) -> None:
        command = self.config["redis.command"].upper()
        value = record.value
        if command in ("SET", "HSET", "JSONSET"):
            key = self._key(record)
            if value is None:
                pipe.delete(key)
                return
            if command == "HSET":
                pipe.hset(key, mapping=_fields(value))
            elif command == "JSONSET":
                pipe.execute_command("JSON.SET", key, "$", plain_json(value))
            else:
                pipe.set(key, _text(value))
            if self.config["redis.ttl.s"]:
                pipe.expire(key, self.config["redis.ttl.s"])
            return
        key = (self.config["redis.key"] or "${topic}").replace("${topic}", record.topic)
        if command == "XADD":
            pipe.xadd(key, _fields(value))
        elif command == "ZADD":
            pipe.zadd(key, {_text(value): record.timestamp_ms or 0})
        else:
            {"LPUSH": pipe.lpush, "RPUSH": pipe.rpush, "SADD": pipe.sadd}[command](key, _text(value))

    def _key(self, record: SinkRecord) -> Any:
        if record.key is None:
            raise DataError("the record has no key")
        key = _text(record.key)
        prefix = self.config["redis.key"].replace("${topic}", record.topic)
        return (
            key
            if not prefix
            else f"{prefix}{key if isinstance(key, str) else key.decode('utf-8', 'replace')}"
        )

    def stop(self) -> None:
        """See SinkConnector."""
        if hasattr(self, "_redis"):
            self._redis.close()


def _text(value: Any) -> str | bytes:
    if isinstance(value, (str, bytes)):
        return value
    return plain_json(value) if isinstance(value, (dict, list)) else java_text(value)


def _fields(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict) or not value:
        raise DataError(f"a {type(value).__name__} has no fields for a hash or stream")
    return {name: _text(item) for name, item in value.items() if item is not None}


def _client(config: Config, timeout_s: float) -> redis.Redis:
    """Raises OptionError."""
    import redis

    hosts = config["redis.hosts"]
    uri = f"redis://{hosts.split(',')[0]}" if hosts else config["redis.uri"]
    more: dict[str, Any] = {"password": config["redis.password"]} if config["redis.password"] else {}
    try:
        client: redis.Redis = redis.Redis.from_url(uri, socket_timeout=timeout_s, **more)
    except ValueError as error:
        raise OptionError(f"redis.uri: {error}", "redis.uri") from None
    return client
