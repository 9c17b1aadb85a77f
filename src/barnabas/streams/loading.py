"""Finds the topology that a command line names: `module:app`, or `file.py:app`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from barnabas.pipelines.plan.errors import suggestion
from barnabas.pipelines.processing.engine import reason_of
from barnabas.streams.app import App
from barnabas.streams.builder import StreamsBuilder
from barnabas.streams.errors import StreamsError
from barnabas.streams.topology import Topology

USUAL = ("app", "builder", "topology")


def app_of(named: str, folder: Path | None = None) -> App:
    """The app of `module:app`. What it names may be an App, a StreamsBuilder, a Topology, or a function that returns one;
    without a name it is `app`, `builder` or `topology`. folder: where modules are looked for first. Raises StreamsError."""
    place, _, name = named.partition(":")
    if not place:
        raise StreamsError(f"{named!r} is not of the form module:app")
    module = _module(place, folder or Path.cwd())
    app = _member(module, place, name)
    if callable(app) and not isinstance(app, (App, StreamsBuilder, Topology)):
        try:
            app = app()
        except Exception as error:
            raise StreamsError(f"{named}: {reason_of(error)}") from error
    if isinstance(app, App):
        return app
    if isinstance(app, (StreamsBuilder, Topology)):
        return App(place.removesuffix(".py").rpartition("/")[2].replace(".", "-"), topology=app)
    raise StreamsError(f"{named} is a {type(app).__name__}, not an App, a StreamsBuilder or a Topology")


def folder_of(named: str, folder: Path | None = None) -> Path:
    """The folder with the code of `module:app`, or of `path/file.py:app`."""
    place = named.partition(":")[0]
    folder = folder or Path.cwd()
    return (folder / place).parent if place.endswith(".py") else folder


def _member(module: ModuleType, place: str, name: str) -> Any:
    if not name:
        name = next((usual for usual in USUAL if hasattr(module, usual)), "")
        if not name:
            raise StreamsError(f"{place} has no app, builder or topology: name another one as {place}:name")
    if not hasattr(module, name):
        kinds = (App, StreamsBuilder, Topology)
        there = [key for key, value in vars(module).items() if isinstance(value, kinds)]
        raise StreamsError(f"{place} has no {name!r}; {suggestion(name, there) if there else 'nor an app'}")
    return getattr(module, name)


def _module(place: str, folder: Path) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _file(folder / place)
        sys.path.insert(0, str(folder))
        return importlib.import_module(place)
    except StreamsError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise StreamsError(f"there is no module {place} in {folder}, and none is installed") from None
        raise StreamsError(f"{place} cannot be imported: {reason_of(error)}") from error
    except Exception as error:
        raise StreamsError(f"{place} cannot be imported: {reason_of(error)}") from error


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise StreamsError(f"{path}: no such file")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
