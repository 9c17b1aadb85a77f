"""Keeps an output's rows by their keys in a file beside the query's checkpoint, where they can be looked up.

    view: {}                                    of an aggregate: its groups are the key, with the window's start at its end
    view: {key: [customer], keep: 7 days}       rows of windows are deleted 7 days after their end
    view: {key: [id], changelog: customers}     each change is also written to a compacted topic

The file (views/store.py) is written by the driver, one transaction for each micro-batch. It belongs to the checkpoint: if
both are moved aside, both begin anew. A file that is lost, damaged or older than the checkpoint is rebuilt from the
changelog topic; without one the query is refused, because the rows that it will not see again would be missing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item, duration_seconds
from barnabas.pipelines.entries.shapes import Duration, Group, Several, Text
from barnabas.pipelines.kinds.sources.topics import topic_name
from barnabas.pipelines.kinds.targets.base import (
    RESULT_DDL,
    Delivery,
    TargetKind,
    bury,
    plain_column,
    result_columns,
)
from barnabas.pipelines.kinds.targets.view_changelog import Changelog, Changes
from barnabas.pipelines.plan.errors import PipelineError, TargetAway, suggestion
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.places import Place
from barnabas.pipelines.plan.relations import Aggregate
from barnabas.pipelines.spark.folders import Folder, local_path
from barnabas.pipelines.spark.frame import DELETED, RECORD_COLUMNS, Frame, complaint, fail, flag, quoted
from barnabas.pipelines.spark.topics.offsets import parse_offset
from barnabas.pipelines.views.columns import Column, Stored
from barnabas.pipelines.views.store import (
    FILE_NAME,
    Note,
    Row,
    ViewDamaged,
    ViewError,
    ViewFile,
    ViewShape,
    put_aside,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.pipelines.plan.pipeline import PipelineSpec

ROWS_AT_ONCE: Final = 10_000
"""Rows that are converted at once: other threads, which answer lookups, wait for so long."""
FREE_BYTES_MIN: Final = 32 << 20
"""With less space on the disk a query with a view does not start."""
SHAPE: Final = Group(
    {
        "key": Several(Text("a field"), "the fields that identify a row; default the aggregate's groups"),
        "window": Text("the field with the start of a row's window; default the aggregate's"),
        "keep": Duration("how long after its end a window can be looked up; default for ever"),
        "changelog": Text("a compacted topic to which each change is written, and from which a lost view is rebuilt"),
        "folder": Text("where the view's file is; default beside the query's checkpoint"),
    },
    "rows that can be looked up by their keys",
)  # fmt: skip


def _check(item: Item) -> Mapping[str, Any]:
    entries = SHAPE.open(item) if item.value is not None else {}
    key = list(entries["key"].texts()) if "key" in entries else []
    if len(set(key)) < len(key):
        entries["key"].fail(f"key names a field twice: {', '.join(key)}")
    return {
        "key": key,
        "window": entries["window"].text() if "window" in entries else None,
        "keep": entries["keep"].text() if "keep" in entries else None,
        "changelog": topic_name(entries["changelog"]) if "changelog" in entries else None,
        "folder": entries["folder"].text() if "folder" in entries else None,
    }


def _reach(options: Mapping[str, Any]) -> None:
    """The view's file is on this machine; `open_view` tries it."""


def view_file(spec: PipelineSpec, output: Output, checkpoint: str) -> Path:
    """The path of a view's file. checkpoint: of its query. Raises PipelineError if that is not on this machine."""
    assert output.target is not None
    folder = output.target.options["folder"]
    if folder is not None:
        return Path(folder) / f"{spec.name}.{output.name}.sqlite"
    local = local_path(checkpoint)
    if local is None:
        raise PipelineError(
            f"{output.at('view')}: the checkpoint {checkpoint} is not on this machine, but the view's file has to be: name "
            "its folder, like view: {folder: data/views}"
        )
    return local / FILE_NAME


def open_view(spec: PipelineSpec, output: Output, checkpoint: str) -> None:
    """Tries, before the query starts, whether the view's file can be written. Raises TargetAway if it cannot now."""
    path = view_file(spec, output, checkpoint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if free < FREE_BYTES_MIN:
            raise TargetAway(
                f"view {output.name}: {free:,} bytes are free on the disk of {path}: free some space"
            )
        with ViewFile(path) as file, file.transaction():
            if file.shape is not None:
                file.adopt(file.shape)  # writes a page
    except ViewDamaged:
        return  # to be rebuilt in the first micro-batch, or refused
    except (ViewError, OSError) as error:
        raise TargetAway(f"view {output.name}: {error}") from error  # fmt: skip


# --- what a view holds ----------------------------------------------------------------------------------


def view_shape(spec: PipelineSpec, output: Output, kinds: Mapping[str, str], identity: str = "") -> ViewShape:
    """What the view of an output holds. kinds: the types of its fields. Raises PipelineError."""
    assert output.target is not None
    options = output.target.options
    place = _place(output)
    aggregate = output.aggregate or spec.plan[output.relation].aggregate
    window = options["window"] or _window_of(aggregate, kinds)
    key = _key(spec, output, aggregate, window, kinds)
    for name in [*key, *([window] if window else [])]:
        if name not in kinds:
            fail(place, f"there is no field {name!r} for the view's key; {suggestion(name, kinds)}")
    if window is not None and kinds[window] != "timestamp":
        fail(place, f"window {window} is {kinds[window]}, not a timestamp")
    seen: dict[str, str] = {}
    for name in kinds:
        if (other := seen.setdefault(name.lower(), name)) != name:
            fail(
                place,
                f"{other} and {name} differ only in case: SQLite takes them for one column, so rename one",
            )
    keys = [*key, *([window] if window else [])]
    rest = [name for name in kinds if name not in keys]
    columns = tuple(Column(name, kinds[name], name in keys) for name in [*keys, *rest])
    for column in columns:
        if column.is_key and (reason := column.cannot_be_key):
            fail(place, f"the view's key: {reason}")
    if options["keep"] is not None and window is None:
        fail(place, "keep is for rows of windows: name the field with the start of a row's window as window")
    of = aggregate.window if aggregate is not None and window == _window_of(aggregate, kinds) else None
    length = duration_seconds(of.every) if of is not None and of.every is not None else 0
    end = of.end if of is not None and of.end in kinds else None
    label = f"{spec.name}/{output.name}"
    return ViewShape(label, identity, columns, window, int(length * 1_000_000) or None, end)


def _window_of(aggregate: Aggregate | None, kinds: Mapping[str, str]) -> str | None:
    """The field with the window's start of an aggregate, if it has one and the field is still there."""
    name = aggregate.window.name if aggregate is not None and aggregate.window is not None else None
    return name if name in kinds else None


def _key(
    spec: PipelineSpec,
    output: Output,
    aggregate: Aggregate | None,
    window: str | None,
    kinds: Mapping[str, str],
) -> list[str]:
    """The fields of the key without the window's start."""
    assert output.target is not None
    key_names = [name for name in output.target.options["key"] if name != window]
    groups = [name for name in aggregate.groups if name != window] if aggregate is not None else []
    if key_names and output.aggregate is not None and set(key_names) != set(groups):
        fail(
            _place(output),
            f"the key is {', '.join(key_names)}, but the aggregate's groups are {', '.join(groups)}: rows of several groups "
            "would replace each other",
        )
    plan_key = spec.plan[output.relation].key
    named = list(plan_key.fields) if plan_key is not None and not aggregate else []
    key = key_names or [name for name in groups if name in kinds] or [name for name in named if name in kinds]
    if not key and window is None:
        fail(_place(output), "the view needs key, the fields that identify a row, like key: [customer]")
    return key


def _place(output: Output) -> Place:
    return Place(label=f"{output.name}: view", where=output.at("view"), output=output.name)


def kinds_of(rows: DataFrame, fields: Sequence[str]) -> dict[str, str]:
    """The types of fields."""
    return {name: rows.schema[name].dataType.simpleString() for name in fields}


def prepared(spec: PipelineSpec, output: Output, frame: Frame) -> Frame:
    """The frame, checked, and with an error in rows without a key. Raises PipelineError."""
    shape = view_shape(spec, output, kinds_of(frame.data, frame.fields))
    if output.aggregate is not None or spec.plan[output.relation].aggregate is not None:
        return frame  # null is a group like any other
    data = frame.data
    for column in shape.key:
        missing = F.col(quoted(column.name)).isNull()
        data = flag(data, F.when(missing, complaint(f"the view's key {column.name} is null")), _place(output))
    return replace(frame, data=data)


# --- a micro-batch --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batch:
    """A micro-batch for a view. known: what the file holds afterwards."""

    spec: PipelineSpec
    output: Output
    shape: ViewShape
    path: Path
    note: Note
    changelog: Changelog | None
    keep_us: int | None
    ordered: bool


def materialise(
    rows: DataFrame,
    delivery: Delivery,
    spec: PipelineSpec,
    output: Output,
    fields: Sequence[str],
    settings: Mapping[str, str],
    checkpoint: str | None,
) -> None:
    """Applies a micro-batch to the view of an output. checkpoint: None in a replay, which has none. Raises ViewError."""
    if checkpoint is None:
        raise PipelineError(
            f"{output.at('view')}: letters of view {output.name} cannot be replayed, because newer rows may have the same "
            "key: write the repaired records to the source again"
        )
    assert output.target is not None
    options = output.target.options
    shape = view_shape(spec, output, kinds_of(rows, fields), delivery.identity)
    takes_back = output.aggregate is not None and output.aggregate.takes_back
    single = output.aggregate is not None and not takes_back
    table = _collected(rows, fields, spec, settings, single=single, sorts=not takes_back)
    offsets = source_offsets(Folder(rows.sparkSession, checkpoint), delivery.batch_id)
    offsets.pop(spec.replays, None)  # users did not name it as a source
    note = Note(delivery.batch_id, offsets, _now_ms())
    changelog = None
    if options["changelog"] is not None:
        changelog = Changelog(rows.sparkSession, options["changelog"], shape, settings)
    keep = None if options["keep"] is None else int(duration_seconds(options["keep"]) * 1_000_000)
    path = view_file(spec, output, checkpoint)
    _apply(_Batch(spec, output, shape, path, note, changelog, keep, not single), table)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def source_offsets(folder: Folder, batch_id: int) -> dict[str, dict[str, int]]:
    """Where the micro-batch after this one begins in each partition, from a query's checkpoint."""
    offsets: dict[str, dict[str, int]] = {}
    for line in folder.read(f"offsets/{batch_id}").decode().splitlines()[2:]:
        offset = json.loads(line) if line.startswith("{") else {}
        if not all(isinstance(entry, dict) for entry in offset.values()):
            continue  # of files: it says nothing about topics
        for (topic, partition), position in parse_offset(offset)[0].items():
            offsets.setdefault(topic, {})[str(partition)] = position
    return offsets


def _collected(
    rows: DataFrame,
    fields: Sequence[str],
    spec: PipelineSpec,
    settings: Mapping[str, str],
    *,
    single: bool,
    sorts: bool,
) -> pa.Table:
    """The rows of a micro-batch in the driver; those with an error go to the dead letters. single: each key occurs once,
    and no row has an error. sorts: rows of one key count in the order of their records; otherwise in that in which Spark
    has made them. Always runs the query, whose state Spark would miss otherwise."""
    columns = [_plain(rows, name) for name in fields]
    if single:
        return rows.select(*columns).toArrow()
    there = [F.col(DELETED)] if DELETED in rows.columns else []
    bad = F.col("_error").isNotNull()
    place = ("_topic", "_partition", "_offset")
    names = [name for name in RECORD_COLUMNS if name not in place]
    record = dict(zip((*RECORD_COLUMNS, "_error"), result_columns(rows), strict=True))
    heavy = [F.when(bad, record[name]).alias(name) for name in names]
    light = [record[name].alias(name) for name in (*place, "_error")]
    table = rows.select(*heavy, *light, *columns, *there).toArrow()
    failed = table.filter(table["_error"].is_valid())
    if failed.num_rows:
        letters = failed.select([*RECORD_COLUMNS, "_error"])
        bury(rows.sparkSession.createDataFrame(letters, RESULT_DDL), spec, settings)
    good = table.filter(table["_error"].is_null())
    return good.sort_by([(name, "ascending") for name in place]) if sorts else good


def _plain(rows: DataFrame, name: str) -> SparkColumn:
    kind = rows.schema[name].dataType.simpleString()
    return F.to_json(F.col(quoted(name))).alias(name) if kind == "variant" else plain_column(rows, name)


def _apply(batch: _Batch, table: pa.Table) -> None:
    try:
        file = ViewFile(batch.path)
    except ViewDamaged as error:
        _require_changelog(batch, str(error))
        put_aside(batch.path, _now_ms())
        file = ViewFile(batch.path)
    with file:
        try:
            _apply_to(file, batch, table)
        except ViewDamaged as error:
            _require_changelog(batch, str(error))
            file.close()
            put_aside(batch.path, _now_ms())
            with ViewFile(batch.path) as fresh:
                _apply_to(fresh, batch, table)


def _apply_to(file: ViewFile, batch: _Batch, table: pa.Table) -> None:
    shape, note = batch.shape, batch.note
    of_other = file.shape is not None and file.shape.identity != shape.identity
    before = None if of_other else file.note
    with file.transaction():
        if of_other:
            file.clear()
        if before is None and note.batch == 0:
            file.adopt(shape)
            if batch.changelog is not None:
                batch.changelog.begin()
        elif before is None or before.batch < note.batch - 1:
            _rebuild(file, batch, before)
        elif before.batch >= note.batch and same_batch(before, note):
            return
        else:
            file.adopt(shape)
        changes = Changes(shape, wanted=batch.changelog is not None)
        for puts, gone in _pieces(table, batch):
            file.remove(shape, gone)
            file.put(shape, puts)
            changes.add(puts, gone)
        if batch.keep_us is not None:
            old = file.expired(shape, batch.keep_us, note.at_ms * 1000)
            file.remove(shape, old)
            changes.add((), old)
        if batch.changelog is not None:
            batch.changelog.write(changes, note)
        file.set_note(note)


def same_batch(before: Note, note: Note) -> bool:
    """Whether a repeated micro-batch is the one that was applied, or an older one. If the checkpoint was lost since then
    (a crash of the machine), Spark may plan another one of the same number: that is applied."""
    return before.batch > note.batch or before.offsets == note.offsets


def _require_changelog(batch: _Batch, reason: str) -> None:
    """Raises ViewError if the view cannot be rebuilt."""
    if batch.changelog is None:
        raise ViewError(
            f"view {batch.shape.label}: {reason}; it has no changelog topic to be rebuilt from: begin anew with "
            f"`barnabas pipelines restart {batch.spec.name} --from earliest`, or restore the file"
        )


def _rebuild(file: ViewFile, batch: _Batch, before: Note | None) -> None:
    reason = (
        f"the file {batch.path} has no rows, and the query has had {batch.note.batch} micro-batches"
        if before is None
        else f"the file {batch.path} is as of micro-batch {before.batch}, and the query's next one is {batch.note.batch}"
    )
    _require_changelog(batch, reason)
    assert batch.changelog is not None
    file.clear()
    file.adopt(batch.shape)
    for changes in batch.changelog.read():
        file.remove(batch.shape, changes.gone)
        file.put(batch.shape, changes.puts)


def _pieces(table: pa.Table, batch: _Batch) -> Iterator[tuple[list[Row], list[Row]]]:
    """The rows to put and the keys to remove, in pieces of ROWS_AT_ONCE rows. Of several rows with one key only the last
    one counts."""
    shape = batch.shape
    at = [shape.names.index(column.name) for column in shape.key]
    if not batch.ordered:
        # Rows in the order of the tree are stored faster.
        table = table.sort_by([(column.name, "ascending") for column in shape.key])
    marked = DELETED in table.column_names
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        piece = table.slice(start, ROWS_AT_ONCE)
        columns = [column.stored(piece[column.name]) for column in shape.columns]
        rows: list[Row] = list(zip(*columns, strict=True))
        if not batch.ordered:
            yield rows, []
            continue
        gone = piece[DELETED].to_pylist() if marked else [False] * len(rows)
        last: dict[tuple[Stored, ...], Row | None] = {}
        for row, is_gone in zip(rows, gone, strict=True):
            last[tuple(row[i] for i in at)] = None if is_gone else row
        yield [row for row in last.values() if row is not None], [k for k, row in last.items() if row is None]


VIEW: Final = TargetKind(
    "view",
    "a repeated micro-batch changes nothing",
    SHAPE,
    _check,
    _reach,
    takes_open=lambda _: False,
    deletes=lambda _: True,
    prepared=prepared,
    open=open_view,
    materialise=materialise,
)
