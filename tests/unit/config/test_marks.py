"""An option that is marked as working is read by somebody: the reference must not promise more than there is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

from barnabas.config import topic_options
from barnabas.config.broker_options import BROKER
from barnabas.config.option import Mark, Option
from barnabas.config.topic_options import TOPIC
from barnabas.storage.config import LogConfig

SOURCE = Path(__file__).parents[3] / "src" / "barnabas"
AREAS = sorted(path.stem for path in (SOURCE / "config").glob("broker_*.py") if path.stem != "broker_options")


def constants() -> dict[str, str]:
    """Option name -> the constant that code reads it by."""
    modules = [importlib.import_module(f"barnabas.config.{area}") for area in AREAS]
    return named_in(*modules)


def named_in(*modules: ModuleType) -> dict[str, str]:
    """The same of some modules that declare options."""
    return {
        value.name: name
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, Option)
    }


def readers() -> str:
    """All code that may read an option: not the declarations themselves, and no client of a broker."""
    skipped = {"config", "client", "pipelines", "cli"}
    paths = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in skipped]
    paths += [
        SOURCE / "config" / f"{name}.py" for name in ("loader", "providers", "dynamic", "group_options")
    ]
    return "\n".join(path.read_text() for path in paths)


def is_in_log_config(topic_name: str) -> bool:
    field = topic_name.replace(".", "_")
    return {field, field.removeprefix("message_")} & set(LogConfig.__dataclass_fields__) != set()


def test_every_file_of_broker_options_is_in_the_table() -> None:
    assert [name for name in constants() if BROKER.find(name) is None] == []


def test_what_is_marked_as_working_is_read() -> None:
    code, names = readers(), constants()
    words = set(re.findall(r"\w+", code))
    unread = [
        option.name
        for option in BROKER
        if option.mark is Mark.WORKS
        and names.get(option.name) not in words
        and f'"{option.name}"' not in code
        and not (option.topic is not None and is_in_log_config(option.topic))
    ]
    assert unread == [], "mark them STORED until something reads them"


def test_topic_configs_that_work_reach_the_log() -> None:
    code, names = readers(), named_in(topic_options)
    unread = [
        option.name
        for option in TOPIC
        if option.mark is Mark.WORKS
        and not is_in_log_config(option.name)
        and not (option.name in names and f"topic_options.{names[option.name]}" in code)
        and f'"{option.name}"' not in code
    ]
    assert unread == []
