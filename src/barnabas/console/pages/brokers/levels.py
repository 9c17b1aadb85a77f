"""The levels of a broker's loggers: seen and changed while it runs."""

from __future__ import annotations

from typing import Final

from barnabas.admin import ConfigKind, ConfigResource, back_to_default, set_to
from barnabas.console.asking import Ask, Done
from barnabas.console.rendering import encoded
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")


def _resource(ask: Ask) -> ConfigResource:
    number = ask.path["broker"]
    if not number.isdecimal():
        raise Refused(404, said("There is no broker {name}", name=number[:40]))
    return ConfigResource(ConfigKind.BROKER_LOGGER, number)


async def read(ask: Ask) -> Data:
    """The loggers of a broker with their levels"""
    resource = _resource(ask)
    options = (await ask.admin.configs.describe([resource]))[resource]
    q = ask.text("q").lower()
    return {
        "id": int(resource.name),
        "loggers": [
            {"name": name, "level": option.value}
            for name, option in sorted(options.items())
            if q in name.lower()
        ],
        "levels": LEVELS,
        "list": {"q": ask.text("q"), "sort": "", "descending": False},
        "commands": [ask.command("config", "describe", "logger", resource.name)],
    }


async def set_level(ask: Ask) -> Done:
    """Set the level of one logger: logger, level (none: back to that of the broker's file), was: the level that was shown"""
    resource, logger, level = _resource(ask), ask.required("logger"), ask.text("level")
    if level and level not in LEVELS:
        raise Refused(400, said("{name} is not one of {choices}", name=level[:40], choices=", ".join(LEVELS)))
    before = (await ask.admin.configs.describe([resource]))[resource].get(logger)
    was = ask.raw("was")
    if before is not None and was is not None and was != before.value:
        raise Refused(
            409,
            said("Somebody else has set {name} to {value} meanwhile", name=logger, value=before.value or ""),
            said("Look at the new value, and send yours again if it is still right."),
        )
    changes = set_to({logger: level}) if level else back_to_default([logger])
    (await ask.admin.configs.alter({resource: changes})).require()
    go_to = f"/brokers/{encoded(resource.name)}/levels"
    data = {"logger": logger, "before": None if before is None else before.value, "after": level or None}
    if not level:
        return Done(said("{name} is back at its default", name=logger), go_to, data,
                    (ask.command("config", "unset", "logger", resource.name, logger),))  # fmt: skip
    return Done(said("{name} is set to {value}", name=logger, value=level), go_to, data,
                (ask.command("config", "set", "logger", resource.name, f"{logger}={level}"),))  # fmt: skip


PAGE: Final = Page(
    "brokers", "/brokers/{broker}/levels", "brokers", read, template="levels.html",
    actions=(Action("/brokers/{broker}/levels", set_level),),
)  # fmt: skip
