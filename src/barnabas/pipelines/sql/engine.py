"""Carries out statements: declares streams and tables, starts their queries as pipelines, and says what is there.

Every method may be called from any thread; statements that change something run one after the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import yaml

from barnabas.admin import Admin, NewTopic
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Catalog, Relation, RunningQuery, declared
from barnabas.pipelines.fronts.sql.constants import check_writable
from barnabas.pipelines.fronts.sql.errors import TOO_DEEP, SqlError
from barnabas.pipelines.fronts.sql.functions import FUNCTIONS
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.fronts.sql.planning import (
    Planned,
    Settings,
    check_columns,
    plan,
    plan_source_table,
    properties_of,
)
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.managed import Wanted
from barnabas.pipelines.sql import answers
from barnabas.pipelines.sql.connectors import Connectors
from barnabas.pipelines.sql.inserting import Inserter
from barnabas.pipelines.sql.left import remove_left
from barnabas.pipelines.sql.schemas import Schemas
from barnabas.pipelines.sql.store import StatementFile, Stored

if TYPE_CHECKING:
    from barnabas.pipelines.serving.manager import Manager

log = logging.getLogger(__name__)

START: Final = "auto.offset.reset"
PROPERTIES: Final[Mapping[str, str]] = {START: "latest", "ksql.query.pull.table.scan.enabled": "true"}
"""What SET may change, and what holds without it. Others are accepted and change nothing: shells of ksqlDB set them."""
OLD_PREFIX: Final = "ksql.streams."
RUNNING: Final = {"running": "RUNNING", "starting": "RUNNING", "paused": "PAUSED", "failed": "ERROR"}


@dataclass(frozen=True, slots=True)
class Session:
    """What SET and DEFINE have said before a statement."""

    properties: Mapping[str, str]
    variables: Mapping[str, str]

    @property
    def start(self) -> str:
        """Where queries begin to read: earliest or latest. Raises SqlError."""
        value = self.properties.get(START, self.properties.get(OLD_PREFIX + START, PROPERTIES[START])).lower()
        if value not in ("earliest", "latest"):
            raise SqlError(f"{START} is {value!r}; allowed: earliest, latest")
        return value


class Following(Protocol):
    """A query whose rows somebody reads."""

    def close(self) -> None:
        """Ends it; called from any thread."""


class Engine:
    """The streams, tables and queries of one server."""

    def __init__(
        self,
        manager: Manager,
        client: Mapping[str, str],
        registry: Callable[[], str | None] = lambda: None,
        connect: Callable[[], str | None] = lambda: None,
    ) -> None:
        """client: librdkafka's properties, with bootstrap.servers. registry, connect: the addresses of the schema registry
        and of a worker of Connect, if there are any."""
        self.connectors = Connectors(connect)
        self.manager = manager
        self.schemas = Schemas(registry)
        self.client = client
        self.catalog = Catalog()
        self.following: dict[str, Following] = {}
        """The push queries whose rows somebody reads."""
        self._file = StatementFile(manager.folder)
        self._lock = threading.RLock()

    def open(self) -> None:
        """Reads the statements of an earlier server. Its queries are pipelines, which the manager goes on with; those whose
        rows somebody was reading are gone with their readers."""
        remove_left(self.manager.folder, self.client)
        for stored in self._file.read():
            try:
                for statement in read_statements(stored.text, types=self.catalog.types):
                    self._again(statement, stored)
            except SqlError as error:
                log.error(
                    "statement cannot be read again", extra={"statement": stored.text, "reason": str(error)}
                )

    @property
    def is_new(self) -> bool:
        """Whether no statement has changed anything yet, also before a restart."""
        return next(self._file.read(), None) is None

    def admin(self) -> Admin:
        """A new client for administration; to be closed."""
        return Admin(self.client)

    # --- statements --------------------------------------------------------------------------------

    def execute(self, text: str, session: Session) -> Iterator[answers.Answer]:
        """Carries out statements, one after the other; an answer for each. SELECT and PRINT are not among them: they answer
        with rows. Raises SqlError."""
        for statement in read_statements(text, session.variables, self.catalog.types):
            yield self.one(statement, session)

    def one(self, statement: s.Statement, session: Session) -> answers.Answer:
        """Carries out one statement. Raises SqlError."""
        work = WORK.get(type(statement))
        if work is None:
            raise SqlError("SELECT and PRINT answer with rows: send them to /query-stream, or to /query")
        with self._lock:
            try:
                return work(self, statement, session)
            except PipelineError as error:
                raise SqlError(str(error)) from error
            except RecursionError:
                raise SqlError(TOO_DEEP) from None

    def _again(self, statement: s.Statement, stored: Stored) -> None:
        """What a statement changed in the catalog, once more, without starting anything."""
        if isinstance(statement, s.Create):
            relation = self.schemas.with_registry(declared(statement))
            self.catalog.add(relation)
            if stored.query:
                self.catalog.numbers = max(self.catalog.numbers, _number_of(stored.query))
                self._adopt(
                    plan_source_table(relation, stored.query), statement.text, stored.query, relation.name
                )
        elif isinstance(statement, s.CreateType):
            self.catalog.types[statement.name] = statement.type
        elif isinstance(statement, s.DropType):
            self.catalog.types.pop(statement.name, None)
        elif isinstance(statement, s.CreateAs):
            self.catalog.numbers = max(self.catalog.numbers, _number_of(stored.query))
            planned = self._planned(
                statement.select,
                stored.query,
                statement.name,
                statement.kind,
                statement.properties,
                stored.start,
                statement.text,
            )
            self._adopt(planned, statement.text, stored.query, statement.name)
        elif isinstance(statement, s.InsertSelect):
            self.catalog.numbers = max(self.catalog.numbers, _number_of(stored.query))
            self._adopt_insert(
                self._insert_plan(statement, stored.query, stored.start), statement, stored.query
            )
        elif isinstance(statement, s.AddColumns):
            self.catalog.add_columns(statement.name, statement.columns)
        elif isinstance(statement, s.Drop):
            self._forget(statement.name)
        elif isinstance(statement, s.Act):
            for query_id in self._chosen(statement.query):
                del self.catalog.queries[query_id]

    # --- create ------------------------------------------------------------------------------------

    def _create(self, statement: s.Create, session: Session) -> answers.Answer:
        exists = self._may_create(statement.name, statement.or_replace, statement.if_not_exists)
        if exists is not None:
            return answers.done(statement.text, exists)
        statement = self.schemas.completed(statement)
        relation = self.schemas.with_registry(declared(statement))
        self._need_topic(relation)
        self.schemas.register(relation)
        query_id = ""
        if relation.is_source and relation.kind == "TABLE":
            query_id = self.catalog.next_id("CST", relation.name)
            planned = plan_source_table(relation, query_id)
            self._begin(planned)
            self._adopt(planned, statement.text, query_id, relation.name)
        else:
            self.catalog.add(relation)
        self._file.add(Stored(statement.text, query_id))
        return answers.done(
            statement.text,
            f"{statement.kind.capitalize()} created",
            f"{statement.kind.lower()}/`{statement.name}`/create",
        )

    def _create_type(self, statement: s.CreateType, session: Session) -> answers.Answer:
        if statement.name in self.catalog.types:
            known = self.catalog.types[statement.name]
            message = f"Cannot register custom type '{statement.name}' since it is already registered with type: {known}"
            if statement.if_not_exists:
                return answers.done(statement.text, message)
            raise SqlError(message)
        self.catalog.types[statement.name] = statement.type
        self._file.add(Stored(statement.text))
        shown = f"Registered custom type with name '{statement.name}' and SQL type {statement.type}"
        return answers.done(statement.text, shown)

    def _drop_type(self, statement: s.DropType, session: Session) -> answers.Answer:
        if self.catalog.types.pop(statement.name, None) is None:
            if not statement.if_exists:
                raise SqlError(f"Type {statement.name} does not exist.")
            return answers.done(statement.text, f"Type '{statement.name}' does not exist")
        self._file.add(Stored(statement.text))
        return answers.done(statement.text, f"Dropped type '{statement.name}'")

    def _may_create(self, name: str, or_replace: bool, if_not_exists: bool) -> str | None:
        """The answer if it exists already, and that is fine. Raises SqlError if it is not."""
        relation = self.catalog.relations.get(name)
        if relation is None or or_replace:
            return None
        if if_not_exists:
            kind = relation.kind.lower()
            return f"Cannot add {kind} `{name}`: A {kind} with the same name already exists."
        raise SqlError(
            f"Cannot add {relation.kind.lower()} '{name}': A {relation.kind.lower()} with the same name already exists: "
            f"DROP {relation.kind} {name} first, or write CREATE OR REPLACE"
        )

    def _need_topic(self, relation: Relation) -> None:
        """Makes a topic that is missing if the statement says how many partitions it has. Raises SqlError."""
        with self.admin() as admin:
            if relation.topic in admin.topics.list():
                return
            if relation.partitions < 1:
                raise SqlError(
                    f"Kafka topic does not exist: {relation.topic}; create it, or write partitions=1 in WITH"
                )
            configs = {"cleanup.policy": "compact"} if relation.kind == "TABLE" else {}
            admin.topics.create([NewTopic(relation.topic, relation.partitions, configs=configs)]).require()

    def _create_as(self, statement: s.CreateAs, session: Session) -> answers.Answer:
        exists = self._may_create(statement.name, statement.or_replace, statement.if_not_exists)
        if exists is not None:
            return answers.done(statement.text, exists)
        for old in self.catalog.writers_of(statement.name) if statement.or_replace else []:
            self._stop(old)
        query_id = self.catalog.next_id("CSAS" if statement.kind == "STREAM" else "CTAS", statement.name)
        planned = self._planned(
            statement.select,
            query_id,
            statement.name,
            statement.kind,
            statement.properties,
            session.start,
            statement.text,
        )
        self.schemas.register(planned.result)
        self._begin(planned)
        self._adopt(planned, statement.text, query_id, statement.name)
        self._file.add(Stored(statement.text, query_id, session.start))
        answer = answers.done(
            statement.text,
            f"Created query with ID {query_id}",
            f"{statement.kind.lower()}/`{statement.name}`/create",
        )
        answer["commandStatus"]["queryId"] = query_id
        return (
            answer
            if statement.select.emit
            else answers.warned(answer, "EMIT CHANGES is missing at the end; it is meant.")
        )

    def _planned(
        self,
        select: s.Select,
        query_id: str,
        name: str,
        kind: s.RelationKind,
        properties: Mapping[str, Any],
        start: str,
        text: str,
    ) -> Planned:
        return plan(
            self.catalog, select, query_id=query_id, name=name, kind=kind, properties=properties,
            settings=Settings(start, 1, self.schemas.url), text=text,
        )  # fmt: skip

    def _begin(self, planned: Planned) -> None:
        self.manager.put(
            yaml.safe_dump(dict(planned.document), sort_keys=False, allow_unicode=True, width=200)
        )

    def _adopt(self, planned: Planned, text: str, query_id: str, name: str) -> None:
        self.catalog.add(planned.result)
        self.catalog.queries[query_id] = RunningQuery(
            query_id, text, name, planned.sources, planned.document, planned.view
        )

    def _insert_plan(self, statement: s.InsertSelect, query_id: str, start: str) -> Planned:
        sink = self.catalog.find(statement.name)
        check_writable(sink)
        planned = self._planned(
            statement.select, query_id, sink.name, "STREAM", properties_of(sink), start, statement.text
        )
        check_columns(planned.result, sink)
        return planned

    def _insert_select(self, statement: s.InsertSelect, session: Session) -> answers.Answer:
        query_id = f"INSERTQUERY_{self.catalog.numbers + 1}"
        planned = self._insert_plan(statement, query_id, session.start)
        self.catalog.numbers += 1
        self._begin(planned)
        self._adopt_insert(planned, statement, query_id)
        self._file.add(Stored(statement.text, query_id, session.start))
        return answers.done(statement.text, f"Created query with ID {query_id}")

    def _adopt_insert(self, planned: Planned, statement: s.InsertSelect, query_id: str) -> None:
        self.catalog.queries[query_id] = RunningQuery(
            query_id, statement.text, statement.name, planned.sources, planned.document
        )

    def _insert_values(self, statement: s.InsertValues, session: Session) -> answers.Answer:
        Inserter(self.client, self.schemas).insert(self.catalog.find(statement.name), statement)
        return answers.done(statement.text, "Inserted")

    # --- drop, terminate, alter --------------------------------------------------------------------

    def _drop(self, statement: s.Drop, session: Session) -> answers.Answer:
        relation = self.catalog.relations.get(statement.name)
        if relation is None and statement.if_exists:
            return answers.done(statement.text, f"Source `{statement.name}` does not exist.")
        relation = self.catalog.find(statement.name)
        if relation.kind != statement.kind:
            raise SqlError(
                f"{relation.name} is a {relation.kind.lower()}: write DROP {relation.kind} {relation.name}"
            )
        if relation.is_source and statement.delete_topic:
            raise SqlError(f"Cannot delete topic for read-only source: {relation.name}")
        readers = [
            q
            for q in self.catalog.readers_of(relation.name)
            if q not in self.catalog.writers_of(relation.name)
        ]
        if readers:
            raise SqlError(
                f"Cannot drop {relation.name}: it is read by {', '.join(readers)}: TERMINATE them first"
            )
        for query in self.catalog.writers_of(relation.name):
            self._stop(query)
        self._forget(relation.name)
        self._file.add(Stored(statement.text))
        if statement.delete_topic and not relation.is_source:
            with self.admin() as admin:
                admin.topics.delete([relation.topic])
        return answers.done(
            statement.text, f"Source `{relation.name}` (topic: {relation.topic}) was dropped."
        )

    def _forget(self, name: str) -> None:
        for query in self.catalog.writers_of(name):
            del self.catalog.queries[query]
        self.catalog.relations.pop(name, None)

    def _stop(self, query_id: str) -> None:
        if query_id in self.manager.names():
            self.manager.remove(query_id)
        self.catalog.queries.pop(query_id, None)

    def _chosen(self, query: str) -> list[str]:
        """The queries that TERMINATE, PAUSE or RESUME means. Raises SqlError."""
        if query.upper() == "ALL":
            return list(self.catalog.queries)
        query_id = next((one for one in self.catalog.queries if one.upper() == query.upper()), None)
        if query_id is None:
            raise SqlError(f"there is no query {query}; SHOW QUERIES lists them")
        return [query_id]

    def _act(self, statement: s.Act, session: Session) -> answers.Answer:
        push = next(
            (one for name, one in self.following.items() if name.upper() == statement.query.upper()), None
        )
        if push is not None and statement.action == "TERMINATE":
            push.close()
            return answers.done(statement.text, "Query terminated.")
        for query in self._chosen(statement.query):
            if statement.action == "TERMINATE":
                self._stop(query)
            else:
                self.manager.want(query, Wanted.PAUSED if statement.action == "PAUSE" else Wanted.RUNNING)
        if statement.action == "TERMINATE":
            self._file.add(Stored(statement.text))
        word = {"TERMINATE": "terminated", "PAUSE": "paused", "RESUME": "resumed"}[statement.action]
        return answers.done(statement.text, f"Query {word}.")

    def _alter(self, statement: s.AddColumns, session: Session) -> answers.Answer:
        relation = self.catalog.find(statement.name)
        if relation.query is not None:
            raise SqlError(
                f"{relation.name} is made by the query {relation.query}: CREATE OR REPLACE it with the new columns"
            )
        self.catalog.add_columns(statement.name, statement.columns)
        self._file.add(Stored(statement.text))
        return answers.done(statement.text, f"{statement.kind.capitalize()} altered")

    # --- what is there -----------------------------------------------------------------------------

    def _show(self, statement: s.Show, session: Session) -> answers.Answer:
        text = statement.text
        if statement.what in ("STREAMS", "TABLES"):
            return answers.listing(text, statement.what.removesuffix("S"), self.catalog.relations.values())
        if statement.what == "TOPICS":
            with self.admin() as admin:
                names = [n for n in sorted(admin.topics.list()) if statement.all or not n.startswith("_")]
                descriptions = admin.topics.describe(names)
                replicas = {n: [len(p.replicas) for p in descriptions[n].partitions] for n in names}
            return answers.topics(text, replicas)
        if statement.what == "QUERIES":
            rows = [(q, self._topic_of(q), self.state_of(q.id)) for q in self.catalog.queries.values()]
            return answers.queries(text, rows)
        if statement.what == "FUNCTIONS":
            return answers.functions(text)
        if statement.what == "TYPES":
            return answers.types(text, self.catalog.types)
        if statement.what == "CONNECTORS":
            return self.connectors.listing(statement)
        if statement.what == "PLUGINS":
            return self.connectors.plugins(statement)
        if statement.what == "PROPERTIES":
            return answers.properties(text, {**PROPERTIES, **session.properties})
        raise SqlError(f"SHOW {statement.what} is for the shell")

    def _topic_of(self, query: RunningQuery) -> str:
        relation = self.catalog.relations.get(query.sink)
        return query.sink if relation is None else relation.topic

    def state_of(self, query_id: str) -> str:
        """RUNNING, PAUSED or ERROR, in ksqlDB's words."""
        try:
            return RUNNING.get(self.manager.get(query_id).state, "UNRESPONSIVE")
        except KeyError:
            return "TERMINATED"

    def _describe(self, statement: s.Describe, session: Session) -> answers.Answer:
        if statement.function:
            function = FUNCTIONS.get(statement.name)
            if function is None:
                raise SqlError(f"there is no function {statement.name}; SHOW FUNCTIONS lists them")
            return answers.function(statement.text, function)
        if statement.every:
            kind = statement.name.removesuffix("S")
            named = [r.name for r in self.catalog.relations.values() if r.kind == kind]
            each = [self._describe(replace(statement, name=name, every=False), session) for name in named]
            return answers.descriptions(statement.text, each)
        relation = self.catalog.find(statement.name)

        def rows(ids: list[str]) -> list[answers.Answer]:
            named = [self.catalog.queries[one] for one in ids]
            return list(
                answers.queries("", [(q, self._topic_of(q), self.state_of(q.id)) for q in named])["queries"]
            )

        statistics, partitions = "", 0
        if statement.extended:
            with self.admin() as admin:
                partitions = len(admin.topics.describe([relation.topic])[relation.topic].partitions)
            statistics = self._statistics(self.catalog.writers_of(relation.name))
        readers = rows(self.catalog.readers_of(relation.name))
        return answers.description(
            statement.text,
            relation,
            readers,
            rows(self.catalog.writers_of(relation.name)),
            statistics,
            partitions,
        )

    def _statistics(self, queries: list[str]) -> str:
        lines = []
        for query in queries:
            for row in self.manager.status(query)["queries"]:
                rate = row["records_per_second"]
                lines.append(
                    f"messages-per-sec: {0 if rate is None else rate:>10}   total-messages: {row['records']:>10}   "
                    f"failed: {row['failed']:>6}   lag: {'-' if row['lag'] is None else row['lag']}"
                )
        return "\n".join(lines) or "no query writes it"

    def _explain(self, statement: s.Explain, session: Session) -> answers.Answer:
        inner = statement.statement
        if inner is None:
            query = self.catalog.queries[self._chosen(statement.query)[0]]
            document, text = query.document, query.text
        elif isinstance(inner, s.CreateAs | s.Query):
            kind = inner.kind if isinstance(inner, s.CreateAs) else None
            properties = inner.properties if isinstance(inner, s.CreateAs) else {}
            name = inner.name if isinstance(inner, s.CreateAs) else "RESULT"
            planned = plan(
                self.catalog, inner.select, query_id="EXPLAINED", name=name, kind=kind, properties=properties,
                settings=Settings(session.start, 1, self.schemas.url), text=statement.text,
            )  # fmt: skip
            document, text = planned.document, statement.text
        else:
            raise SqlError("EXPLAIN is for a query's id, SELECT, and CREATE ... AS SELECT")
        shown = yaml.safe_dump(dict(document), sort_keys=False, width=100)
        return {
            "@type": "queryDescription",
            "statementText": statement.text,
            "queryDescription": {
                "id": statement.query, "statementText": text, "windowType": None, "fields": [], "sources": [],
                "sinks": [], "topology": shown, "executionPlan": shown, "overriddenProperties": {},
                "queryType": "PERSISTENT",
                "queryErrors": [], "tasksMetadata": [], "state": self.state_of(statement.query) if statement.query else "",
            },
            "warnings": [],
        }  # fmt: skip

    def _assert_topic(self, statement: s.AssertTopic, session: Session) -> answers.Answer:
        give_up = time.monotonic() + statement.timeout_s
        while True:
            with self.admin() as admin:
                there = statement.topic in admin.topics.list()
            if there == statement.exists:
                return answers.done(
                    statement.text, f"Topic {statement.topic} {'exists' if there else 'does not exist'}"
                )
            if time.monotonic() >= give_up:
                raise SqlError(
                    f"Topic {statement.topic} {'does not exist' if statement.exists else 'exists'}"
                )
            time.sleep(0.1)

    def _assert_schema(self, statement: s.AssertSchema, session: Session) -> answers.Answer:
        give_up = time.monotonic() + statement.timeout_s
        while True:
            there = self.schemas.has(statement.subject, statement.id)
            shown = " ".join(
                part
                for part in (
                    f"subject name {statement.subject}" if statement.subject is not None else "",
                    f"id {statement.id}" if statement.id is not None else "",
                )
                if part
            )
            sentence = f"Schema with {shown} {'exists' if there else 'does not exist'}"
            if there == statement.exists:
                return answers.done(statement.text, sentence)
            if time.monotonic() >= give_up:
                raise SqlError(sentence)
            time.sleep(0.1)


def _number_of(query_id: str) -> int:
    last = query_id.rpartition("_")[2]
    return int(last) if last.isdecimal() else 0


WORK: Final[Mapping[type[s.Statement], Callable[[Engine, Any, Session], answers.Answer]]] = {
    s.Create: Engine._create,
    s.CreateType: Engine._create_type,
    s.DropType: Engine._drop_type,
    s.CreateAs: Engine._create_as,
    s.InsertSelect: Engine._insert_select,
    s.InsertValues: Engine._insert_values,
    s.Drop: Engine._drop,
    s.Act: Engine._act,
    s.AddColumns: Engine._alter,
    s.Show: Engine._show,
    s.Describe: Engine._describe,
    s.Explain: Engine._explain,
    s.CreateConnector: lambda engine, statement, session: engine.connectors.create(statement),
    s.DropConnector: lambda engine, statement, session: engine.connectors.drop(statement),
    s.DescribeConnector: lambda engine, statement, session: engine.connectors.describe(statement),
    s.AssertTopic: Engine._assert_topic,
    s.AssertSchema: Engine._assert_schema,
}
