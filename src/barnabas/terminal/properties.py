"""Properties of clients as users give them: NAME=VALUE of -X and of profiles, whose names must be known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.terminal.errors import UsageError

NO_OPTION: Final = "no.such.option"
NOT_FOR_USERS: Final = ("No such configuration property", "must be set through", "not settable")
"""librdkafka's words for what is no option, or one that only a program can set."""


def parse_pairs(items: Iterable[str], option: str) -> Iterator[tuple[str, str]]:
    """NAME=VALUE items as pairs. Raises UsageError that names `option`."""
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {item!r} is not NAME=VALUE")
        yield name.strip(), value.strip()


def require_known(names: Iterable[str], where: str) -> None:
    """Raises UsageError for a name that no client has an option of. where: what named it."""
    from barnabas.client import option_names

    for name in names:
        if option_names.is_known(name) or librdkafka_knows(name):
            continue
        near = option_names.nearest(name)
        hint = f"did you mean {near}?" if near else "librdkafka's CONFIGURATION.md lists those that there are"
        raise UsageError(f"{where} {name}: there is no such option; {hint}")


def librdkafka_knows(name: str) -> bool:
    """Whether the installed librdkafka has an option of this name: it may be newer than what is known here."""
    from confluent_kafka import KafkaException, Producer

    if name == "logger":
        return False  # confluent_kafka's own, which takes an object
    try:
        # Both names are refused if they are unknown, the first one first; so no client is made in any case.
        Producer({name: "", NO_OPTION: ""})
    except KafkaException as error:
        complaint = error.args[0].str()
        return NO_OPTION in complaint or not any(reason in complaint for reason in NOT_FOR_USERS)
    except (TypeError, ValueError):
        return False  # an option of confluent_kafka's that is not a text
    raise AssertionError(f"librdkafka has an option {NO_OPTION}")
