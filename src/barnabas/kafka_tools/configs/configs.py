"""kafka-configs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.admin import (
    Admin,
    Config,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    ResourceError,
    back_to_default,
    set_to,
)
from barnabas.client.errors import UnsupportedByBroker
from barnabas.config.option import double_text
from barnabas.kafka_tools.configs import quotas, scram
from barnabas.kafka_tools.groups.groups import all_groups
from barnabas.kafka_tools.shared.common import (
    ToolError,
    checked,
    connect,
    java_text,
    live_brokers,
    parse,
    read_properties,
    say,
)
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

RESOURCES: Final = {
    "topics": ConfigKind.TOPIC,
    "brokers": ConfigKind.BROKER,
    "broker-loggers": ConfigKind.BROKER_LOGGER,
    "client-metrics": ConfigKind.CLIENT_METRICS,
    "groups": ConfigKind.GROUP,
}
QUOTA_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
DYNAMIC: Final = {source for source in ConfigSource if source.name.startswith("DYNAMIC_")}
SHORTCUTS: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
DEFAULTS: Final = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}

TOOL: Final = Tool(
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip or group.",
    (
        *COMMON,
        Opt("alter", "Alter the configuration of the entity."),
        Opt("describe", "List the configuration of the entity."),
        Opt("all", "With --describe: what is not set, too."),
        Opt(
            "entity-type",
            "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.",
            "String: type",
        ),
        Opt("entity-name", "Name of the entity.", "String: name"),
        Opt("entity-default", "The default entity of the type."),
        Opt("add-config", "k1=v1,k2=[v21,v22],k3=v3", "String: configs"),
        Opt("add-config-file", "A property file of what to add.", "String: file"),
        Opt("delete-config", "Names to remove: k1,k2", "String: names"),
        Opt("force", "Suppress console prompts."),
        Opt("bootstrap-controller", "Of KRaft controllers.", "String: controller", old=True),
        *(
            Opt(name, f"Shortcut for --entity-type {kind} --entity-name.", "String: name")
            for name, kind in SHORTCUTS.items()
        ),
        *(Opt(name, f"The default of {kind}.") for name, kind in DEFAULTS.items()),
    ),
)


@dataclass(frozen=True, slots=True)
class Entity:
    """kind: as in --entity-type. name: None for all of the kind, "" for its default."""

    kind: str
    name: str | None

    @property
    def resource(self) -> ConfigResource:
        """What has the options."""
        return ConfigResource(RESOURCES[self.kind], self.name or "")


def main(arguments: Sequence[str]) -> int:
    """Run the tool; its exit code."""
    parsed = parse(TOOL, arguments)
    try:
        checked(TOOL, check, parsed)
        entities = entities_of(parsed, arguments)
        if is_done_in_zookeeper(parsed, entities):
            return EXIT_OK
        admin = connect(parsed)
        if all(entity.kind in QUOTA_TYPES for entity in entities):
            run_quotas(admin, parsed, entities)
        elif len(entities) > 1:
            raise Refused("Only users and clients can be given together", False)
        elif "describe" in parsed:
            describe(admin, entities[0], "all" in parsed)
        else:
            alter(admin, entities[0], additions(parsed), removals(parsed))
    except (ToolError, ResourceError) as error:
        print(f"Error while executing config command with args '{' '.join(arguments)}'", file=sys.stderr)
        print(java_text(error), file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if ("alter" in parsed) == ("describe" in parsed):
        raise Refused("Command must include exactly one action: --describe, --alter")
    if "alter" in parsed and not {"add-config", "add-config-file", "delete-config"} & parsed.values.keys():
        raise Refused(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def entities_of(parsed: Parsed, arguments: Sequence[str]) -> list[Entity]:
    """The entities in the order of their options. Raises Refused."""
    kinds = parsed.all("entity-type")
    entities = [Entity(kind, parsed.text(name)) for name, kind in SHORTCUTS.items() if name in parsed]
    entities += [Entity(kind, "") for name, kind in DEFAULTS.items() if name in parsed]
    names = list(entity_names(arguments))
    for i, kind in enumerate(kinds):
        if kind not in RESOURCES and kind not in QUOTA_TYPES:
            allowed = ", ".join([*RESOURCES, *QUOTA_TYPES])
            raise Refused(f"Invalid entity type {kind}, the entity type must be one of {allowed}", False)
        entities.append(Entity(kind, names[i] if i < len(names) else None))
    if not entities:
        raise Refused("At least one entity type must be specified", False)
    if "alter" in parsed and any(entity.name is None for entity in entities):
        raise Refused("An entity-name or default entity must be specified with --alter of "
                      f"{', '.join(entity.kind for entity in entities)}", False)  # fmt: skip
    return entities


def entity_names(arguments: Sequence[str]) -> Iterator[str]:
    """Values of --entity-name, and "" for --entity-default, in their order: it pairs them with the types."""
    for i, word in enumerate(arguments):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name == "entity-name":
            yield value if equals else arguments[i + 1]
        elif word.startswith("-") and name == "entity-default":
            yield ""


def additions(parsed: Parsed) -> dict[str, str]:
    """What --add-config and --add-config-file set. Raises Refused."""
    configs = read_properties(parsed.text("add-config-file")) if "add-config-file" in parsed else {}
    for item in split_configs(parsed.text("add-config")):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise Refused(
                'Invalid entity config: all configs to be added must be in the format "key=val".', False
            )
        value = value.strip()
        bracketed = value.startswith("[") and value.endswith("]")
        configs[name.strip()] = value[1:-1] if bracketed else value
    return configs


def split_configs(text: str) -> Iterator[str]:
    """Items between commas that are not inside brackets."""
    depth, item = 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield item
            item = ""
        else:
            item += letter
    if item.strip():
        yield item


def removals(parsed: Parsed) -> list[str]:
    """What --delete-config names."""
    return [name.strip() for name in parsed.text("delete-config").split(",") if name.strip()]


def read_configs(admin: Admin, entity: Entity) -> list[Config]:
    """All options of one resource, by name. Raises ToolError, ResourceError."""
    require_broker(admin, entity)
    configs = admin.configs.describe([entity.resource], synonyms=True)[entity.resource]
    return [configs[name] for name in sorted(configs)]


def require_broker(admin: Admin, entity: Entity) -> None:
    """Raises ToolError if the resource is a broker that is not there now."""
    name = entity.name
    if entity.kind not in ("brokers", "broker-loggers") or not name:
        return
    if not (name.isascii() and name.isdigit()) or int(name) not in live_brokers(admin):
        raise ToolError(f"The broker '{name}' doesn't exist and doesn't have dynamic config.")


def describe(admin: Admin, entity: Entity, everything: bool) -> None:
    """Print the options of one resource, or of all of its kind."""
    names = all_names(admin, entity.kind) if entity.name is None else [entity.name]
    for name in names:
        describe_one(admin, Entity(entity.kind, name), everything)


def all_names(admin: Admin, kind: str) -> list[str]:
    """Names of all resources of a kind."""
    if kind == "topics":
        return list(admin.topics.list())
    if kind in ("brokers", "broker-loggers"):
        nodes = list(map(str, live_brokers(admin)))
        return [*nodes, ""] if kind == "brokers" else nodes
    if kind == "groups":
        return sorted({group.name for group in all_groups(admin)} | set(listed(admin, kind)))
    return listed(admin, kind)


def listed(admin: Admin, kind: str) -> list[str]:
    """Resources that have options of their own, if the broker can list them."""
    try:
        return [resource.name for resource in admin.configs.resources([RESOURCES[kind]])]
    except UnsupportedByBroker:
        return []


def describe_one(admin: Admin, entity: Entity, everything: bool) -> None:
    """Print the options of one resource."""
    name = entity.name or ""
    entries = read_configs(admin, entity)
    mine = [entry for entry in entries if entry.source in own_sources(entity.kind, name)]
    if entity.kind in ("groups", "client-metrics") and not mine and not is_known(admin, entity.kind, name):
        # The broker describes any group, whether it exists or not.
        say(f"The {entity.kind.removesuffix('s')} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    single = entity.kind.removesuffix("s")
    if not name:
        print(f"Default configs for {entity.kind} in the cluster are:")
    else:
        print(f"{'All' if everything else 'Dynamic'} configs for {single} {name} are:")
    for entry in entries if everything else mine:
        synonyms = ", ".join(f"{s.source.name}:{s.name}={null(s.value)}" for s in entry.synonyms)
        sensitive = "true" if entry.is_sensitive else "false"
        print(f"  {entry.name}={null(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def is_known(admin: Admin, kind: str, name: str) -> bool:
    """Whether a resource without options of its own exists."""
    return name in all_names(admin, kind)


def own_sources(kind: str, name: str) -> set[ConfigSource]:
    """Which sources count as set on this resource itself."""
    match kind:
        case "topics":
            return {ConfigSource.DYNAMIC_TOPIC_CONFIG}
        case "brokers":
            if name:
                return {ConfigSource.DYNAMIC_BROKER_CONFIG}
            return {ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG}
        case _:
            return DYNAMIC


def null(value: str | None) -> str:
    """A value as Java prints it."""
    return "null" if value is None else value


def alter(admin: Admin, entity: Entity, add: Mapping[str, str], remove: Sequence[str]) -> None:
    """Set and remove options of one resource, and report that. Raises ToolError."""
    require_known(admin, entity, remove)
    change(admin, entity, add, remove)
    say_done(entity)


def require_known(admin: Admin, entity: Entity, options: Sequence[str]) -> None:
    """Raises Refused for options to remove that are not set."""
    if not options or entity.kind not in ("topics", "groups"):
        return
    known = {entry.name for entry in read_configs(admin, entity)}
    unknown = [option for option in options if option not in known]
    if unknown:
        raise Refused(f"Invalid config(s): {','.join(unknown)}", False)


def change(admin: Admin, entity: Entity, add: Mapping[str, str], remove: Sequence[str]) -> None:
    """Set and remove options of one resource. Raises ToolError, ResourceError."""
    require_broker(admin, entity)
    admin.configs.alter({entity.resource: [*set_to(add), *back_to_default(remove)]}).require()


def say_done(entity: Entity) -> None:
    """What Kafka prints after a change."""
    if entity.name:
        print(f"Completed updating config for {entity.kind.removesuffix('s')} {entity.name}.")
    else:
        print(f"Completed updating default config for {entity.kind} in the cluster.")


def is_done_in_zookeeper(parsed: Parsed, entities: Sequence[Entity]) -> bool:
    """Whether --zookeeper was given for one user's credentials and has what they need: that works without a broker, too.

    Raises ToolError, OSError.
    """
    user = entities[0].name
    wanted = {*additions(parsed), *removals(parsed)}
    if [entity.kind for entity in entities] != ["users"] or not user or not wanted <= scram.MECHANISMS.keys():
        return False
    from barnabas.kafka_tools.configs.in_zookeeper import credentials_of, users_of

    users = users_of(parsed)
    if users is None:
        return False
    try:
        if "describe" in parsed:
            users.show(user)
        else:
            users.change(user, credentials_of(additions(parsed)), removals(parsed))
            say_done(entities[0])
    finally:
        users.close()
    return True


def run_quotas(admin: Admin, parsed: Parsed, entities: Sequence[Entity]) -> None:
    """--describe and --alter of users, clients and ips. Raises ToolError."""
    wanted = {QUOTA_TYPES[entity.kind]: entity.name for entity in entities}
    if "describe" in parsed:
        for entity, values in quotas.read(admin, wanted):
            shown = ", ".join(f"{name}={double_text(float(value))}" for name, value in values.items())
            print(f"Quota configs for {quotas.title(entity)} are {shown}")
        if [entity.kind for entity in entities] == ["users"]:
            scram.show(admin, entities[0].name)
        return
    add, remove = additions(parsed), removals(parsed)
    credentials = {name: add.pop(name) for name in scram.MECHANISMS if name in add}
    gone = [name for name in remove if name in scram.MECHANISMS]
    if credentials or gone:
        if [entity.kind for entity in entities] != ["users"] or not entities[0].name:
            raise ToolError("SCRAM credentials are those of one user: --entity-type users --entity-name NAME")
        scram.write(admin, entities[0].name, credentials, gone)
    remove = [name for name in remove if name not in gone]
    if add or remove:
        quotas.write(admin, {kind: name or None for kind, name in wanted.items()}, add, remove)
    say_done(entities[0])
