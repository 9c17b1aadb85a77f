"""Forms for a connector's options, built from what its plug-in declares, and checked by the worker while somebody types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.console.asking import Ask, Done
from barnabas.console.pages.connectors.worker import at, call, shell
from barnabas.console.rendering import encoded
from barnabas.console.said import Refused, said
from barnabas.console.site import Data

CLASS: Final = "connector.class"
PREFIX: Final = "o."
"""What the names of the form's fields for options begin with."""
HIDDEN: Final = "********"
"""Stands for a value that is not shown; sent back, the value stays as it is."""
SECRET: Final = re.compile(r"password|secret|token|credential|jaas|private\.key|passphrase", re.IGNORECASE)
WITH_LOGIN: Final = re.compile(r"://[^/@\s:]*:[^/@\s]+@")
"""A user and a password in an address."""
RAISED: Final = re.compile(r"^\$\{[^}]+\}$")
"""A reference that the worker resolves, which is no secret itself."""
OWN: Final = "Of this connector"
COMMON: Final = (
    "Common", "Connector", "Transforms", "Predicates", "Error Handling", "Topic Creation", "Exactly Once Support",
    "offsets.topic",
)  # fmt: skip
"""Groups of options that every connector has, as Kafka names them."""
STATES: Final = ("RUNNING", "PAUSED", "STOPPED")


async def read_plugins(ask: Ask) -> Data:
    """The connectors that the worker can run"""
    plugins = await call(ask, "GET", "/connector-plugins")
    rows = [row for row in plugins if row.get("type") in ("source", "sink")]
    return {
        "plugins": sorted(rows, key=lambda row: (row["type"], row["class"].rpartition(".")[2])),
        "commands": [shell(ask, "plugins")],
    }


async def read_create(ask: Ask) -> Data:
    """The options of a new connector, as its plug-in declares them"""
    plugin = ask.path["plugin"]
    validation = await _validated(ask, plugin, {CLASS: plugin})
    return {
        "plugin": plugin,
        "groups": _groups(validation, {}),
        "given": {},
        "more": "",
        "commands": [
            shell(ask, "plugins", plugin),
            shell(ask, "create", "NAME", f"{CLASS}={plugin}", "OPTION=VALUE"),
        ],
    }


async def read_change(ask: Ask) -> Data:
    """A connector's options, to be changed"""
    name = ask.path["connector"]
    config = await call(ask, "GET", at(name, "config"))
    validation = await _validated(ask, config.get(CLASS, ""), config)
    shown = without_secrets(config, _secrets(validation))
    declared = {row["definition"]["name"] for row in validation["configs"] if row.get("definition")}
    return {
        "connector": name,
        "plugin": config.get(CLASS, ""),
        "groups": _groups(validation, shown),
        "given": {option: value for option, value in shown.items() if option in declared},
        "more": "\n".join(f"{option}={value}" for option, value in shown.items() if option not in declared),
        "was": fingerprint(shown),
        "commands": [shell(ask, "create", name, "OPTION=VALUE", "--replace")],
    }


async def _validated(ask: Ask, plugin: str, config: Mapping[str, Any]) -> dict[str, Any]:
    validation: dict[str, Any] = await call(
        ask, "PUT", f"/connector-plugins/{encoded(plugin)}/config/validate", dict(config)
    )
    return validation


def _groups(validation: Mapping[str, Any], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Options by their groups: first those of the plug-in itself, last those that every connector has.

    is_open: whether some of it needs to be filled in.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    number = 0
    for row in validation["configs"]:
        about, value = row.get("definition"), row["value"]
        if about is None or about["name"] in (CLASS, "name"):
            continue
        group = about.get("group") or OWN
        groups.setdefault(group, []).append(
            {
                "name": about["name"],
                "field": PREFIX + about["name"],
                "id": f"o{number}",
                "type": about["type"],
                "is_required": bool(about["required"]),
                "default": about.get("default_value"),
                "importance": about["importance"],
                "documentation": about.get("documentation") or "",
                "title": about.get("display_name") or about["name"],
                "choices": list(value.get("recommended_values") or []),
                "is_secret": about["type"] == "PASSWORD",
            }
        )
        number += 1
    ordered = sorted(groups, key=lambda group: (group in COMMON, group != OWN))
    return [
        {
            "title": group,
            "options": groups[group],
            "is_open": place == 0
            or any(one["is_required"] or one["name"] in values for one in groups[group]),
        }
        for place, group in enumerate(ordered)
    ]


def _secrets(validation: Mapping[str, Any]) -> frozenset[str]:
    """The options that their plug-in declares as passwords."""
    rows = (row.get("definition") for row in validation["configs"])
    return frozenset(row["name"] for row in rows if row and row["type"] == "PASSWORD")


def without_secrets(config: Mapping[str, Any], secrets: frozenset[str]) -> dict[str, str]:
    shown = {}
    for name, value in config.items():
        text = "" if value is None else str(value)
        is_secret = name in secrets or SECRET.search(name) is not None or WITH_LOGIN.search(text) is not None
        shown[name] = HIDDEN if is_secret and text and not RAISED.match(text) else text
    return shown


async def shown_config(ask: Ask, config: Mapping[str, Any]) -> dict[str, str]:
    """A configuration as pages show it: what the plug-in declares as a password is hidden, and what is called like one."""
    try:
        options = await call(ask, "GET", f"/connector-plugins/{encoded(str(config.get(CLASS, '')))}/config")
        secrets = frozenset(row["name"] for row in options if row["type"] == "PASSWORD")
    except Refused:
        secrets = frozenset()
    shown = without_secrets(config, secrets)
    return {name: shown[name] for name in sorted(shown, key=lambda name: (name != CLASS, name))}


# --- what is sent -----------------------------------------------------------------------------------------


def _sent(ask: Ask) -> dict[str, Any]:
    """The options of a form (fields that begin with `o.`, lines of `more`), or the object `config` of the API."""
    document = ask.fields.get("config")
    if isinstance(document, dict):
        return {str(name): value for name, value in document.items()}
    config: dict[str, Any] = {}
    for name in ask.fields:
        if name.startswith(PREFIX) and ask.text(name):
            config[name.removeprefix(PREFIX)] = ask.text(name)
    for line in (ask.raw("more") or "").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        option, equals, value = text.partition("=")
        if not equals or not option.strip():
            raise Refused(400, said("{line} is not of the form OPTION=VALUE", line=text[:200]))
        config[option.strip()] = value.strip()
    return config


async def _with_secrets(ask: Ask, config: dict[str, Any]) -> dict[str, Any]:
    """Values that are hidden on the page stay as they are."""
    if HIDDEN in config.values():
        before = await call(ask, "GET", at(ask.path["connector"], "config"))
        config = {name: before.get(name) if value == HIDDEN else value for name, value in config.items()}
    return config


async def _whole(ask: Ask) -> tuple[str, dict[str, Any]]:
    """(name, configuration) of the connector that a form or the API describes."""
    config = _sent(ask)
    if "connector" in ask.path:
        name = ask.path["connector"]
        config = await _with_secrets(ask, config)
        if CLASS not in config:
            config[CLASS] = (await call(ask, "GET", at(name, "config")))[CLASS]
    else:
        name = ask.text("name")
        config[CLASS] = ask.path["plugin"]
    return name, {**config, "name": name}


async def check(ask: Ask) -> Done:
    """Check options without creating or changing anything: fields o.OPTION and more (lines), or config (an object)"""
    _, config = await _whole(ask)
    validation = await _validated(ask, str(config[CLASS]), config)
    mistakes = _mistakes(validation)
    return Done(
        said("{count} mistakes", count=sum(len(one) for one in mistakes.values())),
        "",
        {"mistakes": mistakes},
        (shell(ask, "validate", *_pairs(_shown_pairs(validation, config))),),
    )


def _mistakes(validation: Mapping[str, Any]) -> dict[str, list[str]]:
    rows = (row["value"] for row in validation["configs"])
    return {row["name"]: list(row["errors"]) for row in rows if row["errors"]}


def _shown_pairs(validation: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    return without_secrets(config, _secrets(validation))


def _pairs(config: Mapping[str, str]) -> Sequence[str]:
    return [f"{name}={value}" for name, value in config.items() if name != "name"]


async def create(ask: Ask) -> Done:
    """Create a connector: name; fields o.OPTION and more (lines), or config (an object); state (RUNNING, PAUSED, STOPPED)"""
    if not ask.text("name"):
        raise Refused(400, said("{name} is missing", name="name"))
    name, config = await _whole(ask)
    validation = await _require_valid(ask, config)
    state = ask.text("state", STATES[0])
    if state not in STATES:
        raise Refused(400, said("{name} must be one of {choices}", name="state", choices=", ".join(STATES)))
    body: dict[str, Any] = {"name": name, "config": config}
    words = []
    if state != STATES[0]:
        body["initial_state"] = state
        words = ["--state", state.lower()]
    await call(ask, "POST", "/connectors", body)
    return Done(
        said("{name} is created", name=name),
        f"/connectors/{encoded(name)}",
        {"connector": name},
        (shell(ask, "create", name, *_pairs(_shown_pairs(validation, config)), *words),),
    )


async def _require_valid(ask: Ask, config: Mapping[str, Any]) -> dict[str, Any]:
    """Raises Refused with the first mistakes."""
    validation = await _validated(ask, str(config[CLASS]), config)
    mistakes = _mistakes(validation)
    if mistakes:
        lines = [f"{option}: {text}" for option, texts in mistakes.items() for text in texts]
        more = "" if len(lines) <= 3 else f" (+{len(lines) - 3})"
        raise Refused(400, said("Options are wrong: {mistakes}", mistakes="; ".join(lines[:3]) + more))
    return validation


async def change(ask: Ask) -> Done:
    """Replace a connector's options: fields o.OPTION and more (lines), or config (an object); was (JSON, from the form)"""
    name, config = await _whole(ask)
    validation = await _require_valid(ask, config)
    was = ask.text("was")
    if was:
        before = await call(ask, "GET", at(name, "config"))
        if was != fingerprint(without_secrets(before, _secrets(validation))):
            raise Refused(
                409,
                said("Somebody else has changed {name} in the meantime", name=name),
                said("Reload the page, and change it once more."),
            )
    await call(ask, "PUT", at(name, "config"), config)
    return Done(
        said("{name} is changed", name=name),
        f"/connectors/{encoded(name)}",
        {"connector": name},
        (shell(ask, "create", name, *_pairs(_shown_pairs(validation, config)), "--replace"),),
    )


def fingerprint(config: Mapping[str, str]) -> str:
    """Tells whether a configuration is still the one that a form was made of."""
    import hashlib

    return hashlib.sha256(json.dumps(sorted(config.items())).encode()).hexdigest()[:16]
