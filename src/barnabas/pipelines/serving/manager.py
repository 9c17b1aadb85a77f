"""The pipelines of a server: added, started, paused, stopped and removed on request, and stored in a folder.

For each pipeline the folder has `<name>/pipeline.yaml`, `<name>/state.json` (whether it should run, and where to begin),
`<name>/failures.json` (the last failures), `<name>/journal.jsonl` (what happened to it) and `<name>/checkpoints/`, so a
restarted server continues everything that it ran. The supervisor runs the pipelines.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.compiler.changes import Change
from barnabas.pipelines.compiler.queries import address_of, changed_queries, stop_file
from barnabas.pipelines.entries.hiding import MASK, hide
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.serving.engine import Engine
from barnabas.pipelines.serving.logs import Line, Page, read_page, write_line
from barnabas.pipelines.serving.managed import Managed, Wanted
from barnabas.pipelines.serving.pauses import Pace
from barnabas.pipelines.serving.rebuilding import rebuild_cost
from barnabas.pipelines.serving.supervisor import Supervisor
from barnabas.pipelines.spark.folders import Folder, join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SPARK_LOG: Final = "spark.log"
JOURNAL: Final = "journal.jsonl"
EARLIEST: Final = {"startingOffsets": "earliest"}


class Manager(Supervisor):
    """All pipelines of a server. Every method may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        client: Mapping[str, str],
        checkpoints: str | None = None,
        code: Path | None = None,
        *,
        engine: Engine | None = None,
        pace: Pace | None = None,
    ) -> None:
        """client: a client's properties, with bootstrap.servers: the cluster of pipelines that name none. checkpoints: a
        folder or URL for the checkpoints of all pipelines; default each pipeline's own folder. code: the folder with
        the code that pipelines may name; None: they may name none."""
        super().__init__(client["bootstrap.servers"], folder / SPARK_LOG, engine=engine, pace=pace)
        self.folder = folder
        self.checkpoints = checkpoints
        self.code = code
        self._client = {
            f"kafka.{name}": value for name, value in client.items() if name != "bootstrap.servers"
        }

    def address(self, spec: PipelineSpec) -> str:
        """The brokers of a pipeline: those that it names itself, if any."""
        return spec.bootstrap or address_of(spec, self.bootstrap)

    def parsed(self, text: str, name: str = "pipeline") -> PipelineSpec:
        """The pipeline of a file; one that names no cluster reaches that of the server. Raises PipelineError."""
        spec = parse_spec(text, name, self.code)
        return spec if spec.bootstrap is not None else spec.reaching(self._client)

    def open(self, spark: SparkSession) -> None:
        """Loads the pipelines in the folder, and begins to run them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.glob("*/pipeline.yaml")):
            try:
                text = path.read_text()
                managed = self._managed(self.parsed(text, str(path)), text)
                state = json.loads(path.with_name("state.json").read_text())
                managed.wanted, managed.starting = Wanted(state["wanted"]), state.get("starting", {})
                managed.beginning = state.get("beginning", "")
            except (PipelineError, OSError, ValueError, KeyError) as error:
                log.error("pipeline cannot be loaded", extra={"path": str(path), "reason": str(error)})
                continue
            managed.failures.extend(_stored_failures(path.with_name("failures.json")))
            self.watch(managed)
        super().open(spark)

    # --- requests ----------------------------------------------------------------------------------

    def changes(self, spec: PipelineSpec) -> list[Change]:
        """What a changed pipeline keeps of the one that is stored under its name; nothing if there is none, or if it has
        not run yet."""
        stored = self._pipelines.get(spec.name)
        if stored is None:
            return []
        return changed_queries(self.spark, spec, stored.checkpoints)

    def rebuild_cost(self, spec: PipelineSpec, query: str) -> str:
        """What it costs to compute a changed pipeline's query again, as the end of a sentence; may be empty."""
        stored = self._pipelines.get(spec.name)
        reports = [] if stored is None else [report for _, report in stored.running]
        return rebuild_cost(spec, self.address(spec), query, reports)

    def put(self, text: str, *, start: bool = True, rebuild: bool = False) -> Managed:
        """Adds a pipeline, or replaces the one of the same name, whose checkpoints the new one continues. rebuild: it puts
        them aside instead, and reads from the earliest record on, if it cannot go on with the state in them.

        Raises PipelineError, before anything is changed, if the pipeline cannot run.
        """
        if MASK in text:
            raise PipelineError(
                f"the file holds {MASK} in place of a secret: write ${{env:NAME}}, or the secret"
            )
        spec = self.parsed(text)
        lost = [change for change in self.changes(spec) if change.lost]
        if lost and not rebuild:
            raise PipelineError(
                f"{spec.name}: query {lost[0].query} cannot go on with the state that it has: {lost[0].lost}; change it "
                "back, give the output another name, or compute all again (barnabas pipelines add --rebuild)"
                f"{self.rebuild_cost(spec, lost[0].query)}"
            )
        self.engine.prepare(spec, self.address(spec))
        managed = self._managed(spec, text, Wanted.RUNNING if start else Wanted.STOPPED)
        with managed.lock:  # so that nothing starts before the old one has stopped
            old = self._pipelines.get(spec.name)
            self.watch(managed)
            if old is not None:
                self.halt([old])
                managed.failures.extend(old.failures)
            if lost:
                self._put_aside(managed)
                managed.begin_at(EARLIEST)
            place = self.folder / spec.name
            place.mkdir(parents=True, exist_ok=True)
            _replace(place / "pipeline.yaml", text)
            self._save(managed)
        self.wake()
        return managed

    def names(self) -> list[str]:
        """The names of all pipelines, sorted."""
        return sorted(self._pipelines)

    def want(self, name: str, wanted: Wanted) -> Managed:
        """Starts, pauses or stops a pipeline; pausing and stopping return when it has stopped. Raises KeyError."""
        managed = self.get(name)
        managed.wanted = wanted  # before the lock is acquired: a start in progress checks it
        with managed.lock:
            managed.wanted = wanted
            managed.retry_at, managed.restarts = 0.0, 0
            if wanted is Wanted.RUNNING:
                managed.last_error = None
            self._save(managed)
            if wanted is not Wanted.RUNNING:
                self.halt([managed])
        self.wake()
        return managed

    def restart(self, name: str, starting: Mapping[str, str] | None = None) -> Managed:
        """Stops and starts a pipeline. starting: source options that say where to begin instead; the old checkpoints,
        and with them the results of aggregates so far, are then moved aside. Raises KeyError."""
        managed = self.get(name)
        with managed.lock:
            self.halt([managed])
            if starting is not None:
                self._put_aside(managed)
                managed.begin_at(starting)
            return self.want(name, Wanted.RUNNING)

    def remove(self, name: str) -> None:
        """Stops and removes a pipeline. Its folder and checkpoints are renamed, not deleted. Raises KeyError."""
        managed = self.get(name)
        managed.wanted = Wanted.STOPPED
        with managed.lock:
            self.halt([managed])
            if self.checkpoints is not None:
                self._put_aside(managed)
            with self._lock:
                del self._pipelines[name]
            place = self.folder / name
            place.rename(place.with_name(f"{name}.removed.{time.time_ns() // 1_000_000}"))

    def _managed(self, spec: PipelineSpec, text: str, wanted: Wanted = Wanted.RUNNING) -> Managed:
        own = join(self.folder, spec.name, "checkpoints")
        place = own if self.checkpoints is None else join(self.checkpoints, spec.name)
        return Managed(spec, place, stop_file(self.folder / spec.name), wanted, text)

    def _put_aside(self, managed: Managed) -> None:
        parent, _, name = managed.checkpoints.rpartition("/")
        folder = Folder(self.spark, parent)
        if folder.exists(name):
            folder.move(name, f"{name}.{time.time_ns() // 1_000_000}")

    def _save(self, managed: Managed) -> None:
        state = {
            "wanted": managed.wanted.value,
            "starting": managed.starting,
            "beginning": managed.beginning,
        }
        _replace(self.folder / managed.spec.name / "state.json", json.dumps(state))

    def keep_failures(self, managed: Managed) -> None:
        """Stores the last failures of a pipeline, so that a restarted server still shows them."""
        try:
            _replace(self.folder / managed.spec.name / "failures.json", json.dumps(list(managed.failures)))
        except OSError as error:
            log.warning("failures not stored", extra={"pipeline": managed.spec.name, "reason": str(error)})

    def keep_line(self, managed: Managed, line: Line) -> None:
        """Adds a line to a pipeline's journal."""
        try:
            write_line(self.folder / managed.spec.name / JOURNAL, line)
        except OSError as error:
            log.warning("line not stored", extra={"pipeline": managed.spec.name, "reason": str(error)})

    def logs(self, name: str, count: int, after: str = "") -> Page:
        """The last lines of a pipeline's log, see `read_page`. Raises KeyError, and ValueError for an invalid `after`."""
        managed = self.get(name)
        journal = self.folder / name / JOURNAL
        page = read_page(journal, self.spark_log, name, managed.query_ids, count, after)
        lines = [replace(line, text=hide(line.text, managed.spec.secrets)) for line in page.lines]
        return Page(lines, page.next)


def _stored_failures(path: Path) -> list[dict[str, str]]:
    """The failures that an earlier server stored; none if there is no such file or it cannot be read."""
    try:
        return [{"at": str(row["at"]), "reason": str(row["reason"])} for row in json.loads(path.read_text())]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _replace(path: Path, text: str) -> None:
    """Replaces a small file so that after a crash there is either the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)
