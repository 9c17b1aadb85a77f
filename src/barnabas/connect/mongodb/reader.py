"""Follows a change stream of a collection, a database or a whole deployment, after copying what is there.

The stream is opened before anything is copied, and read from there afterwards: no change is missed, and a document that
changes while it is copied is told again. A position is a resume token, as JSON; while copying, also the collection and the
last `_id`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pymongo
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from barnabas.connect.errors import ConnectError, RetriableError
from barnabas.connect.mongodb.texts import extended as written
from barnabas.connect.mongodb.texts import loads
from barnabas.connect.records import Json

TOKEN, COPY, COLLECTION, LAST = "_id", "copy", "collection", "last"
GONE: Final = (286, 280, 260)
"""Codes of errors about resume tokens: history lost, fatal, invalid."""
OWN: Final = ("admin", "config", "local")
WAIT_MS: Final = 500


class HistoryLost(ConnectError):
    """The changes after a resume token are not kept any more."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What is followed. database, collection: None for all of them. full, before: what update events have besides."""

    uri: str
    database: str | None = None
    collection: str | None = None
    pipeline: Sequence[Mapping[str, Any]] = ()
    full: str | None = None
    before: str | None = None

    @property
    def namespace(self) -> str:
        """db.collection, db, or nothing."""
        return ".".join(part for part in (self.database, self.collection) if part)


class Reader:
    """One client. Methods raise ConnectError, RetriableError."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
            watched.uri, serverSelectionTimeoutMS=10_000, appname="barnabas", tz_aware=True
        )
        self._stream: Any = None

    def close(self) -> None:
        """Ends the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._client.close()

    def _place(self) -> Any:
        if self.watched.database is None:
            return self._client
        database = self._client[self.watched.database]
        return database if self.watched.collection is None else database[self.watched.collection]

    def _open(self, token: Any, at: Any = None) -> None:
        options: dict[str, Any] = {"max_await_time_ms": WAIT_MS}
        if self.watched.full:
            options["full_document"] = self.watched.full
        if self.watched.before:
            options["full_document_before_change"] = self.watched.before
        if token is not None:
            options["start_after"] = token
        elif at is not None:
            options["start_at_operation_time"] = at
        self._stream = self._place().watch(list(self.watched.pipeline), **options)

    def begin(self, at: Any = None) -> Json:
        """The position of now, or of a timestamp."""
        try:
            self._open(None, at)
            if self._stream.resume_token is None:
                self._stream.try_next()
            token = self._stream.resume_token
        except PyMongoError as error:
            raise self.failed(error, "opening the change stream") from error
        return {TOKEN: None if token is None else written(token)}

    def changes(self, position: Json, count: int) -> tuple[list[tuple[dict[str, Any], Json]], Json]:
        """The next events, each with the position after it, and the position after all; waits half a second at most."""
        changes: list[tuple[dict[str, Any], Json]] = []
        try:
            if self._stream is None:
                token = position.get(TOKEN)
                self._open(None if token is None else loads(token))
            while len(changes) < count:
                change = self._stream.try_next()
                if change is None:
                    break
                changes.append((change, {TOKEN: written(change["_id"])}))
                if change.get("operationType") == "invalidate":
                    self._stream.close()
                    self._stream = None
                    break
            token = self._stream.resume_token if self._stream is not None else None
        except PyMongoError as error:
            self._stream = None
            raise self.failed(error, "reading the change stream") from error
        after: Json = changes[-1][1] if changes else position
        return changes, {TOKEN: written(token)} if token is not None and not changes else after

    def copied(self, position: Json, count: int) -> tuple[list[tuple[dict[str, Any], Json]], Json]:
        """The next documents as events of inserts, and the position after them; without COPY in it when all are copied."""
        try:
            names = self._collections()
            current = position.get(COLLECTION)
            rest = [name for name in names if current is None or name >= current]
            for name in rest:
                last = position.get(LAST) if name == current else None
                documents = self._documents(name, last, count)
                if documents:
                    return documents, {**documents[-1][1], TOKEN: position.get(TOKEN)}
        except PyMongoError as error:
            raise self.failed(error, "copying documents") from error
        return [], {TOKEN: position.get(TOKEN)}

    def _documents(self, name: str, last: str | None, count: int) -> list[tuple[dict[str, Any], Json]]:
        database, _, collection = name.partition(".")
        query = {} if last is None else {"_id": {"$gt": loads(last)["_id"]}}
        documents: list[tuple[dict[str, Any], Json]] = []
        for document in self._client[database][collection].find(query).sort("_id", 1).limit(count):
            key = {"_id": document["_id"]}
            change = {
                "_id": {**key, "copyingData": True},
                "operationType": "insert",
                "documentKey": key,
                "fullDocument": document,
                "ns": {"db": database, "coll": collection},
            }
            documents.append((change, {COPY: "true", COLLECTION: name, LAST: written(key)}))
        return documents

    def _collections(self) -> list[str]:
        """db.collection of all that is followed, in order."""
        if self.watched.database and self.watched.collection:
            return [self.watched.namespace]
        databases = [self.watched.database] if self.watched.database else self._client.list_database_names()
        return sorted(
            f"{database}.{name}"
            for database in databases
            if database not in OWN
            for name in self._client[database].list_collection_names()
            if not name.startswith("system.")
        )

    def failed(self, error: PyMongoError, doing: str) -> ConnectError:
        """What to raise for an error."""
        where = shown(self.watched.uri)
        code = error.code if isinstance(error, OperationFailure) else None
        if code in GONE:
            return HistoryLost(
                f"{where}: the changes after the stored resume token are not kept any more ({error}): they cannot be known. "
                "Delete the connector's offsets and start it again; with startup.mode=copy_existing it reads all documents "
                "anew. To avoid it, make the server's oplog larger"
            )
        if isinstance(error, ConnectionFailure) or error.has_error_label("ResumableChangeStreamError"):
            return RetriableError(f"{where}: {doing}: {error}")
        if code == 40573:
            return ConnectError(
                f"{where}: change streams need a replica set: start mongod with --replSet and run rs.initiate()"
            )
        return ConnectError(f"{where}: {doing}: {error}")


def shown(uri: str) -> str:
    """Without user and password."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
