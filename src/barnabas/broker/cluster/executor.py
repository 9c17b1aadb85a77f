"""One queue for everything that changes this broker's view of the cluster.

One task handles requests to change metadata, changes that others made in the tree, and the state of the session with
the tree, one after the other. A request takes four steps: decide (a pure function over the image), change the tree,
replay onto the image, notify the partitions. When the tree refuses a change because somebody else was quicker, the executor
reads what changed and decides again.

Changes by others arrive as watch events; following.py reads what they belong to.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.broker.cluster.following import DECISIONS_MAX, OTHERS_WERE_QUICKER, ImageKeeper
from barnabas.coordination.tree import (
    ConnectionLost,
    Event,
    EventKind,
    SessionExpired,
    TreeError,
)
from barnabas.cores import acl, tokens
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import ClusterImage
from barnabas.cores.znode_ops import Op, chunks
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.coordination.tree import ZnodeTree

log = logging.getLogger("barnabas.controller")

T = TypeVar("T")
Decide = Callable[[], Iterable[Op | None]]
NoteChunk = Callable[[Sequence[Op]], None]

WATCHED: Final = (
    "/brokers", "/config", "/admin", layout.CONTROLLER, layout.CONTROLLER_EPOCH, acl.LITERAL_ROOT, acl.EXTENDED_ROOT,
    tokens.ROOT,
)  # fmt: skip
REOPEN_PAUSE_S: Final = 1.0


class _Request:
    """Queued work; the caller waits for `result`."""

    __slots__ = ("begun", "result", "work")

    def __init__(self, work: Callable[[], Awaitable[Any]], result: asyncio.Future[Any]) -> None:
        self.work = work
        self.result = result
        self.begun = False


@dataclass(slots=True)
class SessionCounts:
    """What has happened to the sessions with the metadata tree since the start, as Kafka counts it."""

    connects: int = 0
    disconnects: int = 0
    expires: int = 0


class Executor(ImageKeeper):
    """See the module. Call `open`, then `start`; `run` queues work; `close` ends it."""

    def __init__(
        self,
        image: ClusterImage,
        open_tree: Callable[[], Awaitable[ZnodeTree]],
        fresh_uuid: Callable[[], UUID],
        *,
        patience_s: float = 20.0,
        in_office: Callable[[], bool] = lambda: True,
    ) -> None:
        """open_tree: opens a new session. patience_s: how long requests wait for a tree that does not answer. in_office:
        whether this broker is the controller, which completes and removes topics."""
        super().__init__(image, fresh_uuid, in_office)
        self._open_tree = open_tree
        self._patience_s = patience_s
        self._requests: deque[_Request] = deque()
        self.sessions = SessionCounts()
        self._away = False
        self._lost = False
        self._reload = False
        self._recovering = False
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- start and stop --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open a session and watch the tree. Raises TreeError."""
        self.tree = await self._open_tree()
        self.sessions.connects += 1
        await self._watch()

    async def _watch(self) -> None:
        for path in WATCHED:
            await self.tree.watch(path, self.on_event)

    def start(self) -> None:
        """Start the task that handles the queue."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """End the session; work that is still queued is refused."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for request in self._requests:
            if not request.result.done():
                request.result.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, "the broker stops"))
        self._requests.clear()
        await self.tree.close()

    # --- what comes in ---------------------------------------------------------------------------------

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` in its turn, while nothing else changes metadata, and return its result.

        Raises ApiError REQUEST_TIMED_OUT when its turn does not come because the tree does not answer.
        """
        request = _Request(work, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._woken.set()
        try:
            await asyncio.wait((request.result,), timeout=self._patience_s)
        finally:
            abandoned = not request.begun and not request.result.done()
            if abandoned:
                request.result.cancel()
        if abandoned:
            raise _unreachable("the request was not begun")
        result: T = await request.result
        return result

    @property
    def is_current(self) -> bool:
        """Whether the session is, as far as is known, alive, and everything that happened before it has been read."""
        return not (self._lost or self._away or self._reload or self._recovering)

    def settle_soon(self) -> None:
        """Let the followers settle once the current work is done."""
        self._settles = True
        self._woken.set()

    def reload_soon(self) -> None:
        """Read everything again and finish interrupted work, once the current work is done."""
        self._reload = True
        self._woken.set()

    def on_event(self, event: Event) -> None:
        """Called by the tree, on the loop: note the event and return."""
        # Session events arrive once for each watched path.
        if event.kind is EventKind.EXPIRED:
            if not self._lost:
                self.sessions.expires += 1
                log.error("the session with the metadata tree has ended; a new one is opened")
            self._lost, self._away = True, False
        elif event.kind is EventKind.DISCONNECTED:
            if not self._away:
                self.sessions.disconnects += 1
                log.warning("the metadata tree does not answer; metadata cannot be changed meanwhile")
            self._away = True
            return
        elif event.kind is EventKind.RECONNECTED:
            if self._away:
                self.sessions.connects += 1
                log.info("the metadata tree answers again")
            self._reload, self._away = True, False
        else:
            self._count(event.path, 1)
            self._heard.add(event.path)
        self._woken.set()

    # --- the one task ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                while await self._step():
                    pass
            except (TreeError, OSError, ApiError) as error:
                # The events of this attempt are lost, so everything is read again once the tree answers.
                log.warning(
                    "the broker could not follow the metadata tree; it tries again",
                    extra={"reason": str(error)},
                )
                self._reload = True
                asyncio.get_running_loop().call_later(REOPEN_PAUSE_S, self._woken.set)
            except Exception:
                log.exception("an event of the metadata tree met a bug; everything is read again")
                self._reload = True
                asyncio.get_running_loop().call_later(REOPEN_PAUSE_S, self._woken.set)

    async def _step(self) -> bool:
        """Handle one item; False when nothing is left."""
        if self._lost or self._reload:
            await self.recover()
        elif self._heard:
            await self._follow_others()
        elif self._settles:
            self._settles = False
            await self._settle()
        elif self._requests:
            await self._carry_out(self._requests.popleft())
        else:
            return False
        return True

    async def _carry_out(self, request: _Request) -> None:
        if request.result.done():
            return  # its caller has given up
        request.begun = True
        try:
            result = await request.work()
        except (TreeError, OSError) as error:
            self._reload = True
            if not request.result.done():
                request.result.set_exception(_unreachable(str(error)))
        except Exception as error:
            if not request.result.done():
                request.result.set_exception(error)
            elif not isinstance(error, ApiError):
                log.exception("a metadata change failed after its caller had gone")
        else:
            if not request.result.done():
                request.result.set_result(result)

    # --- changing --------------------------------------------------------------------------------------

    async def change(self, decide: Decide, note_chunk: NoteChunk = lambda chunk: None) -> None:
        """Make the changes that `decide` returns, in chunks, and replay them; decide again when the tree refuses them.

        note_chunk: called with each chunk when it is in the tree and in the image.

        Raises ApiError: what `decide` raises, and REQUEST_TIMED_OUT when the tree does not answer.
        """
        await self._write(decide, lambda: self.image, note_chunk)

    async def change_topic(self, name: str, decide: Decide) -> None:
        """As `change`, for one topic, which becomes visible with its partitions once all changes are made."""
        draft = self.image

        def fresh_draft() -> ClusterImage:
            nonlocal draft
            draft = self.image.draft(name)
            return draft

        await self._write(decide, fresh_draft)
        for kind, entity in draft.configs:
            self.image.take_config(kind, entity, draft)
        if name in draft.topics and draft.topics[name] is not self.image.topics.get(name):
            await self.show(draft.topics[name])

    async def _write(
        self, decide: Decide, onto: Callable[[], ClusterImage], note_chunk: NoteChunk = lambda chunk: None
    ) -> None:
        refusals: Counter[str] = Counter()
        # Each node may overtake this change a few times. A limit for all of them together would end an election of thousands
        # of partitions whose leaders change their in-sync sets meanwhile, and everything would be read and decided again.
        while max(refusals.values(), default=0) < DECISIONS_MAX:
            ops = decide()
            image = onto()
            await asyncio.sleep(0)  # let others run: a large topic takes many chunks
            try:
                for chunk in chunks(ops):
                    if chunk:
                        await self._apply(chunk, image)
                        note_chunk(chunk)
                    else:
                        await asyncio.sleep(0)
                return
            except OTHERS_WERE_QUICKER as error:
                log.info("a metadata change was overtaken; it is decided again", extra={"reason": str(error)})
                refusals[error.path] += 1
                await self._see_what_changed(error)
            except (ConnectionLost, SessionExpired) as error:
                refusals["the tree"] += 1
                await self._await_tree(error)
            except TreeError as error:
                log.error("a metadata change was refused", extra={"reason": str(error)})
                why = f"the metadata could not be changed: {error}"
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why) from error
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the metadata was changed by others {DECISIONS_MAX} times while this change was made; try again",
        )

    async def _see_what_changed(self, refusal: TreeError) -> None:
        try:
            await self._follow_others()  # who overtakes one change has often made others of the same kind
            await self.refresh(layout.entity_of(refusal.path) or layout.CONTROLLER)
        except (ConnectionLost, SessionExpired) as error:
            await self._await_tree(error)

    async def _await_tree(self, error: TreeError) -> None:
        """Wait until the tree answers and everything has been read again. Raises ApiError REQUEST_TIMED_OUT."""
        self._reload = True
        try:
            async with asyncio.timeout(self._patience_s):
                while self._lost or self._reload:
                    try:
                        await self.recover()
                    except TreeError:
                        await asyncio.sleep(REOPEN_PAUSE_S / 5)
        except TimeoutError:
            raise _unreachable(str(error)) from error

    # --- recovering ------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Get a live session after a lost connection or session, and make the image match the tree. Raises TreeError."""
        self._recovering = True
        try:
            await self._recover()
        finally:
            self._recovering = False

    async def _recover(self) -> None:
        if self._lost:
            await self.tree.close()
            while True:
                try:
                    await self.open()
                    break
                except TreeError as error:
                    log.error("no new session with the metadata tree", extra={"reason": str(error)})
                    await asyncio.sleep(REOPEN_PAUSE_S)
            self._lost = False
        self._reload = False
        try:
            await self.load()
            await self._settle()
            await self.finish_interrupted()
        except BaseException:
            self._reload = True
            raise


def _unreachable(why: str) -> ApiError:
    return ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the metadata cannot be changed, because the metadata tree does not answer ({why}); the change may have been "
        "made or not: look before you try again",
    )
