"""Finds the user code that a pipeline names, `module:name`, in the folder that may have some.

For a pipeline file of the command line that is the folder of the file; a server has no such folder unless it was started
with one. Modules of other places are never loaded, because whoever may add a pipeline could then run any of them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from barnabas.pipelines.plan.errors import PipelineError, suggestion
from barnabas.pipelines.processing.engine import reason_of

NAMED: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
_folder: ContextVar[Path | None] = ContextVar("folder", default=None)
NO_FOLDER: Final = (
    "this server runs no code of pipelines: start it with --code FOLDER, "
    "the folder with the modules that pipelines may name"
)


@contextmanager
def code_folder(folder: Path | None) -> Iterator[None]:
    """While it is open, code is looked for in this folder; None: nowhere."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def loaded(text: str) -> Any:
    """What `module:name` names. Raises PipelineError, without a place."""
    match = NAMED.fullmatch(text)
    if match is None:
        raise PipelineError(f"{text!r} is not of the form module:name, like alerts:Dangerous")
    folder = _folder.get()
    if folder is None:
        raise PipelineError(NO_FOLDER)
    path = folder.joinpath(*match[1].split(".")).with_suffix(".py")
    if not path.is_file():
        raise PipelineError(f"there is no module {match[1]}: {path} does not exist")
    module = _module(match[1], path, folder)
    if not hasattr(module, match[2]):
        named = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__
        ]
        raise PipelineError(f"{path} has no {match[2]!r}; {suggestion(match[2], named)}")
    return getattr(module, match[2])


def _module(name: str, path: Path, folder: Path) -> ModuleType:
    """The module as the file is now. It has a name of its own, so that another version of it, or a module of the same name
    elsewhere, is another one. Raises PipelineError."""
    source = path.read_bytes()
    digest = hashlib.sha256(str(path).encode() + b"\0" + source).hexdigest()[:12]
    own = f"barnabas_code_{digest}_{name.replace('.', '_')}"
    if own in sys.modules:
        return sys.modules[own]
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[own]
        raise PipelineError(f"{path} cannot be imported: {reason_of(error)}") from error
    finally:
        sys.path.remove(str(folder))
    return module


def own_modules(code: Callable[..., Any]) -> list[ModuleType]:
    """The modules that have to be sent along with a class or function to where they are not installed: its own, and those
    in the same folder that it has imported."""
    module = sys.modules.get(code.__module__)
    origin = getattr(module, "__file__", None)
    if module is None or origin is None or code.__module__.split(".")[0] == "barnabas":
        return []
    folder = Path(origin).resolve().parent
    if "site-packages" in folder.parts:
        return []
    modules = [module]
    for other in list(sys.modules.values()):
        place = getattr(other, "__file__", None)
        if place and other is not module and Path(place).resolve().is_relative_to(folder):
            modules.append(other)
    return [one for one in modules if one.__name__.split(".")[0] not in ("barnabas", "__main__")]
