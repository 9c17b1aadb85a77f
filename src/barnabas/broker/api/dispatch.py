"""From a frame to its handler, and from the handler's answer back to the connection.

A faulty frame is treated by Kafka's rules: an unknown API, an unsupported version or a body that cannot be read closes the
connection, with a log line that names the peer. Only ApiVersions answers an unsupported version: clients probe with it.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.broker.api import access
from barnabas.broker.api.context import Context
from barnabas.broker.api.fetch_lane import FETCH_KEY, FetchLanes
from barnabas.broker.api.produce_lane import ProduceLanes
from barnabas.broker.api.table import BY_KEY, Answer, Api
from barnabas.broker.cluster.loggers import REQUESTS
from barnabas.broker.net.transports import ANSWERS_QUEUED_MAX
from barnabas.cores.acl import Operation, ResourceType
from barnabas.runtime.timing import now_us
from barnabas.wire.errors import ApiError, ErrorCode, shortened
from barnabas.wire.header import Encoded, RequestHeader, decode_request_header, encode_response
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.primitives import Buffer, WireError
from barnabas.wire.schema import Message, Struct

if TYPE_CHECKING:
    from barnabas.broker.api.quotas import Quotas
    from barnabas.broker.api.services import Services
    from barnabas.broker.net.connection import Connection
    from barnabas.runtime.timing import RequestStats

log = logging.getLogger("barnabas.dispatch")

HEAD: Final = struct.Struct(">hhi")
API_VERSIONS_KEY: Final = 18
PRODUCE_KEY: Final = 0
LARGE_FRAME_BYTES: Final = 64 << 10
"""Requests of this size and more are decoded by a thread: they may have 10,000 rows and more."""
LARGE_PRODUCE_BYTES: Final = 256 << 10
"""The same for Produce, of which most bytes are records. Those that look like an earlier one do not come this way."""
LARGE_ANSWER_ROWS: Final = 2000
"""Answers with more rows are encoded by a thread: it takes about a millisecond for each thousand."""

T = TypeVar("T")


class Lanes:
    """The lanes of one connection. A lane is what its requests of one kind have in common: with it, the next such request
    takes the fast path, past decoding and handler (produce_lane, fetch_lane). All others take the general path.
    """

    __slots__ = ("fetch", "produce")

    def __init__(self) -> None:
        self.produce = ProduceLanes()
        self.fetch = FetchLanes()


class Dispatcher:
    """Routes the frames of all connections: the frame handler of net/connection.py."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._partitions = services.partitions
        self._tasks: set[asyncio.Future[Any]] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._produces = services.times.of("Produce")
        self.quotas: Quotas | None = None
        """None while no quota is set, so that nothing needs to be counted."""
        self.fast_path = True
        """Whether produce requests may take their fast path, which counts and logs nothing."""
        self.short_fetches = True
        """The same for fetches (fetch_lane)."""
        self._logs_requests = False

    def enforce(self, quotas: Quotas) -> None:
        """Apply quotas and log levels that have just been set or removed."""
        self.quotas = quotas if quotas.in_use else None
        self._logs_requests = REQUESTS.isEnabledFor(logging.DEBUG)
        self.fast_path = not quotas.of_produce_in_use and not self._logs_requests
        self.short_fetches = not quotas.in_use and not self._logs_requests

    def on_frames(self, connection: Connection, buffer: memoryview, end: int) -> int:
        """See FrameHandler: produce requests that look like the previous one are served in one go."""
        lanes: Lanes | None = connection.kept
        if lanes is None or not self.fast_path:
            return 0
        plain = lanes.produce.plain(self._partitions.topology)
        return 0 if plain is None else plain.take(connection, buffer, end, ANSWERS_QUEUED_MAX, self._produces)

    def may_overlap(self, frame: memoryview) -> bool:
        """See FrameHandler: the produce requests of a connection wait for followers together."""
        return self.fast_path and frame[0] == frame[1] == PRODUCE_KEY

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request. `frame` is borrowed: it is overwritten after this call returns."""
        if len(frame) < HEAD.size:
            connection.close(f"a frame of {len(frame)} bytes is too short to be a request")
            return
        key, version, correlation_id = HEAD.unpack_from(frame)
        if key == PRODUCE_KEY and self.fast_path:
            lanes: Lanes = connection.kept or _lanes_of(connection)
            plain = lanes.produce.find(frame, version, self._partitions.topology)
            if plain is not None and plain[0].take(
                connection, plain[1], plain[2], correlation_id, self._produces
            ):
                return
        if key == FETCH_KEY and self.short_fetches:
            lanes = connection.kept or _lanes_of(connection)
            if lanes.fetch.take(self._services, connection, frame, correlation_id):
                return
        api = BY_KEY.get(key)
        if api is None or version not in api.versions:
            self._refuse_version(connection, api, key, version, correlation_id)
            return
        begun_us = connection.since_us or now_us()
        if len(frame) >= (LARGE_PRODUCE_BYTES if key == PRODUCE_KEY else LARGE_FRAME_BYTES):
            # A bytearray, because appends patch base offsets in place.
            self._beside(connection, self._handle_large(connection, api, version, bytearray(frame), begun_us))
            return
        try:
            header, position = decode_request_header(frame)
            request = api.request.decode(frame, version, position)
        except WireError as error:
            connection.close(f"{api.name} v{version} cannot be read: {error}")
            return
        self._handle(connection, api, header, request, frame, begun_us)

    def _handle(
        self,
        connection: Connection,
        api: Api,
        header: RequestHeader,
        request: Message,
        frame: Buffer,
        begun_us: int,
    ) -> None:
        """Handle a request that has been decoded."""
        key, version, correlation_id = api.key, header.request_api_version, header.correlation_id
        connection.client_id = header.client_id
        connection.api_versions[key] = version
        timing = self.stats_of(api, request).begin(begun_us, version, len(frame), request)
        context = Context(self._services, connection, version, correlation_id, header.client_id, timing)
        if self._services.authorizer is not None:
            connection.request_name = api.name
        if key == PRODUCE_KEY:
            assert isinstance(request, ProduceRequest)
            if self._services.authorizer is None:
                _lanes_of(connection).produce.learn(memoryview(frame), version, request, self._partitions)
            else:
                self._learn_allowed(context, memoryview(frame), request)
        elif key == FETCH_KEY and self.short_fetches:
            assert isinstance(request, FetchRequest)
            _lanes_of(connection).fetch.learn(memoryview(frame), header, request, self._services)
        if self._logs_requests:
            self._log_request(api, context, len(frame))
        if self.quotas is None:
            self._run(api, context, request)
        else:
            self._run_counted(self.quotas, api, context, request, len(frame))

    # --- beside the loop -------------------------------------------------------------------------------

    def _beside(self, connection: Connection, work: Coroutine[Any, Any, None]) -> None:
        """Go on with the present request of a connection later; its next one waits."""
        connection.wait()
        task: asyncio.Future[None] = asyncio.ensure_future(work)
        self._tasks.add(task)

        def ended(done: asyncio.Future[None]) -> None:
            self._tasks.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None:
                connection.fail(error)

        task.add_done_callback(ended)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "wire")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _handle_large(
        self, connection: Connection, api: Api, version: int, frame: bytearray, begun_us: int
    ) -> None:
        """Decode a request of tens of thousands of rows in a thread, then handle it."""
        connection.keep_room()
        try:
            header, position = decode_request_header(frame)
            request: Any = await self._in_thread(
                lambda: api.request.decode(memoryview(frame), version, position)
            )
        except WireError as error:
            connection.release_room()
            connection.close(f"{api.name} v{version} cannot be read: {error}")
            return
        connection.release_room()
        if connection.closed and not (api.key == PRODUCE_KEY and not request.acks):
            return
        connection.handle_now()
        self._handle(connection, api, header, request, frame, begun_us)
        if not connection.is_waiting:
            connection.resume()

    async def _answer_large(self, api: Api, context: Context, answer: Message) -> None:
        """Encode an answer of thousands of rows in a thread, then send it."""
        try:
            parts = await self._in_thread(lambda: _encoded(answer, context))
        except WireError as error:
            self._fail_encoding(api, context, error)
            return
        if context.connection.closed:
            return
        self._respond(context, parts)
        if context.throttle_ms:
            self._mute(context)
        else:
            context.connection.resume()

    def _learn_allowed(self, context: Context, frame: memoryview, request: ProduceRequest) -> None:
        """Learn a produce lane for a producer that may write; the authorizer drops it when access rules change."""
        if request.transactional_id is not None and not context.allows(
            Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id, quietly=True
        ):
            return
        names = {access.name_of(context, topic) or "" for topic in request.topic_data}
        if all(context.allows(Operation.WRITE, ResourceType.TOPIC, name, quietly=True) for name in names):
            lanes = _lanes_of(context.connection)
            lanes.produce.learn(frame, context.version, request, self._partitions)

    @staticmethod
    def _log_request(api: Api, context: Context, size_bytes: int) -> None:
        connection = context.connection
        REQUESTS.debug(
            "request",
            extra={
                "api": api.name, "version": context.version, "client": context.client_id, "peer": connection.peer,
                "bytes": size_bytes,
            },
        )  # fmt: skip

    def _run_counted(
        self, quotas: Quotas, api: Api, context: Context, request: Message, size_bytes: int
    ) -> None:
        """Like `_run`, while quotas are set. Time that a handler spends waiting is not charged."""
        if api.key == PRODUCE_KEY:
            quotas.charge_produce(context, size_bytes)
        context.begun_s = time.perf_counter()
        try:
            self._run(api, context, request)
        finally:
            quotas.charge_time(context, time.perf_counter() - context.begun_s)
            context.begun_s = 0.0
            # If the answer comes later, `_finish_later` mutes the connection once the answer is there.
            if context.throttle_ms and not context.connection.closed and not context.connection.is_waiting:
                self._mute(context)

    def _mute(self, context: Context) -> None:
        connection = context.connection
        connection.wait()
        self._services.loop.call_later(context.throttle_ms / 1000, connection.resume)

    def _refuse_version(
        self, connection: Connection, api: Api | None, key: int, version: int, correlation_id: int
    ) -> None:
        if api is not None and key == API_VERSIONS_KEY:
            answer = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=self._services.apis.of_key(API_VERSIONS_KEY),
            )
            connection.respond(encode_response(answer, 0, correlation_id))
        elif api is None:
            connection.close(f"API key {key} is not one that this broker serves")
        else:
            served = f"{api.versions[0]} to {api.versions[-1]}"
            connection.close(f"{api.name} v{version} is not served; versions {served} are")

    # --- running a handler -----------------------------------------------------------------------------

    def _run(self, api: Api, context: Context, request: Message) -> None:
        context.timing.handle()
        try:
            if self._services.authorizer is None:
                answer = api.handler_of(context.version)(context, request)
            else:
                answer = self._run_allowed(api, context, request)
        except Exception as error:
            answer = self._failed(api, context, request, error)
            if answer is None:
                return
        if answer is None:
            return
        if isinstance(answer, Message | Encoded):
            self._answer(api, context, answer)
            return
        future = asyncio.ensure_future(answer)
        if future.done():
            self._finish(api, context, request, future)
            return
        context.timing.wait()
        context.connection.wait()
        self._tasks.add(future)
        future.add_done_callback(lambda done: self._finish_later(api, context, request, done))

    def _run_allowed(self, api: Api, context: Context, request: Message) -> Answer | Awaitable[Answer]:
        """The handler's answer to the allowed part of a request. Raises ApiError when the whole request is refused."""
        refused = access.check(api, context, request)
        if refused is None:
            return api.handler_of(context.version)(context, request)
        if access.nothing_left(api, request, context.version):
            answer: Answer | Awaitable[Answer] = api.response()
            if isinstance(request, ProduceRequest) and not request.acks:
                answer = None
        else:
            answer = api.handler_of(context.version)(context, request)
        if isinstance(answer, Message):
            return refused.join(answer)
        if answer is None:
            # A producer that wants no answer can notice the refusal only by the closed connection.
            context.connection.close("a produce request with acks=0 was refused")
            return None
        assert not isinstance(answer, Encoded), "no API with rows of its own answers with bytes"
        return _joined(answer, refused)

    def _finish_later(
        self, api: Api, context: Context, request: Message, future: asyncio.Future[Answer]
    ) -> None:
        """Called by the loop when a handler that had to wait has finished."""
        self._tasks.discard(future)
        context.timing.finish()
        context.connection.release_room()
        if future.cancelled():
            return
        if context.connection.closed:
            self._note_unread(api, context, future)
            return
        try:
            if self._finish(api, context, request, future):
                return
            if context.throttle_ms:
                self._mute(context)
            else:
                context.connection.resume()
        except Exception as error:
            context.connection.fail(error)

    def _note_unread(self, api: Api, context: Context, future: asyncio.Future[Answer]) -> None:
        """The client has gone before its answer. A refusal concerned the client alone; a bug is logged all the same."""
        error = future.exception()
        if error is not None and not isinstance(error, ApiError):
            _log_bug(api, context, error)

    def _finish(self, api: Api, context: Context, request: Message, future: asyncio.Future[Answer]) -> bool:
        """Answer; True if a thread encodes the answer, after which the connection goes on."""
        error = future.exception()
        answer = self._failed(api, context, request, error) if error is not None else future.result()
        return answer is not None and self._answer(api, context, answer)

    def _failed(self, api: Api, context: Context, request: Message, error: BaseException) -> Answer:
        """The answer to a request whose handler raised; None when the connection had to be closed instead."""
        if isinstance(error, ApiError):
            code, text = error.code, error.message
        else:
            _log_bug(api, context, error)
            code, text = (
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "internal error of the broker; see its log",
            )
        fields = api.response.FIELDS
        if "error_code" not in fields or not fields["error_code"].exists_in(context.version):
            context.connection.close(f"{api.name} v{context.version}: {text}")
            return None
        values: dict[str, Any] = {"error_code": code}
        if "error_message" in fields and fields["error_message"].exists_in(context.version):
            values["error_message"] = text
        return api.response(**values)

    def _answer(self, api: Api, context: Context, answer: Message | Encoded) -> bool:
        """Send an answer; True if a thread encodes it first."""
        if self.quotas is not None and isinstance(answer, Message):
            self.quotas.charge_answer(context, answer)
            if context.begun_s:  # now, so that the answer has the throttle time; the rest is charged later
                now_s = time.perf_counter()
                self.quotas.charge_time(context, now_s - context.begun_s)
                context.begun_s = now_s
            if context.throttle_ms and "throttle_time_ms" in api.response.FIELDS:
                answer.throttle_time_ms = context.throttle_ms  # type: ignore[attr-defined]
        if isinstance(answer, Message):
            code = getattr(answer, "error_code", 0)
            if code:
                context.timing.stats.failed(ErrorCode(code).name)
        if isinstance(answer, Message) and has_many_rows(answer, LARGE_ANSWER_ROWS):
            self._beside(context.connection, self._answer_large(api, context, answer))
            return True
        try:
            parts = _encoded(answer, context)
        except WireError as error:
            self._fail_encoding(api, context, error)
            return False
        self._respond(context, parts)
        return False

    def stats_of(self, api: Api, request: Message) -> RequestStats:
        """Where requests of this kind are counted."""
        if isinstance(request, FetchRequest):
            services = self._services
            state = request.replica_state
            replica = request.replica_id if state is None else state.replica_id
            return services.consumer_fetches if replica < 0 else services.follower_fetches
        return self._services.times.of(api.name)

    @staticmethod
    def _respond(context: Context, parts: list[Any]) -> None:
        connection = context.connection
        if connection.closed:
            return
        connection.respond(parts)
        context.timing.answer(context.throttle_ms)
        connection.timings.append(context.timing)

    @staticmethod
    def _fail_encoding(api: Api, context: Context, error: WireError) -> None:
        log.error(
            "an answer cannot be encoded", extra={"api": api.name, "version": context.version}, exc_info=error
        )
        context.connection.close(f"the answer to {api.name} v{context.version} cannot be encoded")

    async def close(self) -> None:
        """Cancel requests in progress; their clients see the connections close."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _log_bug(api: Api, context: Context, error: BaseException) -> None:
    log.error(
        "a request failed inside the broker",
        extra={"api": api.name, "version": context.version, "peer": context.connection.peer},
        exc_info=error,
    )


def has_many_rows(answer: Struct, rows: int) -> bool:
    """Whether the lists of an answer, with those of their elements, have more than `rows` elements."""
    count = 0
    for name in answer.FIELDS:
        value = getattr(answer, name)
        if not isinstance(value, list):
            continue
        count += len(value)
        if count > rows:
            return True
        if value and isinstance(value[0], Struct):
            inner = [field for field in value[0].FIELDS if isinstance(getattr(value[0], field), list)]
            for row in value if inner else ():
                count += sum(len(getattr(row, field) or ()) for field in inner)
                if count > rows:
                    return True
    return False


async def _joined(answer: Awaitable[Answer], refused: access.Refused) -> Answer:
    joined = await answer
    return refused.join(joined) if isinstance(joined, Message) else joined


def _encoded(answer: Message | Encoded, context: Context) -> list[Any]:
    """The answer's frame. Raises WireError.

    Error texts are shortened when one is too long for a protocol string, as when it repeats a name of the maximum length.
    """
    try:
        return encode_response(answer, context.version, context.correlation_id)
    except WireError:
        if isinstance(answer, Encoded):
            raise
        _shorten_texts(answer)
        return encode_response(answer, context.version, context.correlation_id)


def _shorten_texts(part: Struct) -> None:
    for name in part.FIELDS:
        value = getattr(part, name)
        if isinstance(value, str) and name.endswith("message"):
            setattr(part, name, shortened(value))
        for row in value if isinstance(value, list) else (value,):
            if isinstance(row, Struct):
                _shorten_texts(row)


def _lanes_of(connection: Connection) -> Lanes:
    """The lanes that this connection has learned."""
    if connection.kept is None:
        connection.kept = Lanes()
    lanes: Lanes = connection.kept
    return lanes
