"""Every lesson of examples/lessons does what its page says, one after the other, on one broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.documents.sessions import ROOT, Shell, masked, rewrite_page, steps_of
from tests.support.process import BrokerProcess
from tests.support.registry import RegistryProcess

LESSONS: Final = ROOT / "examples" / "lessons"
PAGES: Final = sorted(page for page in LESSONS.glob("*/README.md") if steps_of(page))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker as a reader starts it: nobody else's topics are in it."""
    broker = BrokerProcess(tmp_path_factory.mktemp("lessons") / "data").start()
    yield broker
    broker.stop()


@contextmanager
def registry(page: Path, broker: BrokerProcess, folder: Path, shell: Shell) -> Iterator[None]:
    """A schema registry where the page asks one; the page has it on port 8081."""
    if "localhost:8081" not in page.read_text("utf-8"):
        yield
        return
    service = RegistryProcess(broker.bootstrap, folder / "registry.log").start()
    try:
        service.await_writer()
        shell.replaced["localhost:8081"] = service.url.removeprefix("http://")
        shell.replaced["python "] = f"BARNABAS_REGISTRY={service.url} python "
        yield
    finally:
        service.end()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_lesson(page: Path, shared: BrokerProcess, tmp_path: Path, rewrite: bool) -> None:
    folder = tmp_path / page.parent.name
    shutil.copytree(page.parent, folder)
    shell = Shell(shared.bootstrap, folder, {"DATA/": f"{shared.data_dir}/"})
    with registry(page, shared, tmp_path, shell):
        different, steps_run = [], {}
        for step in steps_of(page):
            printed = shell.run(step.command)
            if masked(step.shown) != masked(printed):
                different.append("\n".join([f"{step.name}: $ {step.command}", "the page says", *step.shown,
                                            "and it prints", *printed]))  # fmt: skip
                steps_run[step.line] = (step, printed)
    if rewrite:
        rewrite_page(page, steps_run)
        return
    assert not different, "\n\n".join(different)
