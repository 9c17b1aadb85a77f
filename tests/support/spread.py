"""How the tests are spread over the processes of pytest-xdist: `pytest -n 4`.

Each test is handed out alone, except where tests share something costly: those that use one fixture of a module go
to one process, and so do all that use one of `COSTLY`, wherever they are. Files with Spark go to the first of `SPARKS`
processes that has time. What takes longest begins first, and the many small tests fill the gaps at the end.

The processes collect the tests and know their fixtures; the one that hands them out knows only their names. So each
process leaves the groups in a file, and `Spread` reads them there. (xdist's own `--dist loadgroup` appends the group
to a test's name instead, which has had no effect since pytest 9.2: pytest-xdist issue 1386.)
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

try:
    from xdist.scheduler import LoadScopeScheduling
except ImportError:  # without pytest-xdist the tests run one after another
    LoadScopeScheduling = object

COSTLY: Final = {
    "spark": "spark",
    "zookeeper": "zookeeper",
    "zookeeper_server": "zookeeper",
    "guarded": "console-guarded",
    "console": "console",
}
"""Session fixtures (or parameters that stand for them) that few processes start, since each is a JVM, or several processes;
their group."""

SPARKS: Final = 2
"""How many processes have a Spark session; one alone would be what the whole run waits for."""

FIRST: Final = ("tests/pipelines/", "tests/clients/", "tests/cluster/", "tests/sim/", "tests/console/")
"""Where the tests are that take seconds; what is not below these comes last."""


def group_of(item: pytest.Item) -> str | None:
    """The tests of one group run in one process; None for a test that may run anywhere."""
    marked = item.get_closest_marker("xdist_group")
    if marked is not None:
        return str(marked.args[0])
    chosen = getattr(item, "callspec", None)
    for name in [*getattr(item, "fixturenames", ()), *(chosen.params.values() if chosen else ())]:
        if isinstance(name, str) and name in COSTLY:
            group = COSTLY[name]
            return f"{group} {item.nodeid.partition('::')[0]}" if group == COSTLY["spark"] else group
    definitions = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    if any(
        definition[-1].scope in ("module", "package", "class")
        for definition in definitions.values()
        if definition
    ):
        return item.nodeid.partition("::")[0]
    return None


def joined(groups: dict[str, str]) -> dict[str, str]:
    """The groups with those of a file's own fixtures in the file's costly group, where it has one: apart from it, they
    would start the fixtures of the module a second time."""
    costly = {nodeid.partition("::")[0]: group for nodeid, group in groups.items() if is_costly(group)}
    return {nodeid: costly.get(group, group) for nodeid, group in groups.items()}


def is_costly(group: str) -> bool:
    return group.startswith(tuple(COSTLY.values()))


def arrange(items: list[pytest.Item], groups_file: Path) -> None:
    """Put the longest work first and note each test's group; the order inside a file stays."""
    groups = joined({item.nodeid: group for item in items if (group := group_of(item)) is not None})

    def rank(item: pytest.Item) -> tuple[int, int]:
        group = groups.get(item.nodeid)
        if group is not None and group.startswith(COSTLY["spark"]):
            return -1, 0
        place = next((i for i, folder in enumerate(FIRST) if item.nodeid.startswith(folder)), len(FIRST))
        return place, int(group is None)

    items.sort(key=rank)
    whole = groups_file.with_name(f"{groups_file.name}.{os.getpid()}")
    whole.write_text(json.dumps(groups))
    whole.replace(groups_file)


class Spread(LoadScopeScheduling):
    """Hands out groups and single tests in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._groups: dict[str, str] | None = None
        self._with_spark: set[Any] = set()

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads(groups_file(self.config).read_text())
        return self._groups.get(nodeid, nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """The first that this process may have: no more than SPARKS of them get files with Spark."""
        may_have_spark = node in self._with_spark or len(self._with_spark) < SPARKS
        for scope in self.workqueue:
            with_spark = scope.startswith(f"{COSTLY['spark']} ")
            if may_have_spark or not with_spark:
                break
        else:
            node.shutdown()
            return
        if with_spark:
            self._with_spark.add(node)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        self._with_spark.discard(node)
        crashed: str | None = super().remove_node(node)
        return crashed


_FILE: Final = pytest.StashKey[Path]()


def groups_file(config: pytest.Config) -> Path:
    """Where the processes of this run leave the groups."""
    path = getattr(config, "workerinput", {}).get("groups_file")
    if path is not None:
        return Path(path)
    if _FILE not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="barnabas-tests-")
        config.add_cleanup(folder.cleanup)
        config.stash[_FILE] = Path(folder.name) / "groups.json"
    return config.stash[_FILE]
