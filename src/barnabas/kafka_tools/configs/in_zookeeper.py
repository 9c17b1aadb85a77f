"""The users of a cluster in its ZooKeeper, for kafka-configs --zookeeper: the first ones are made before a broker runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.cores.znode_layout import CONFIG_CHANGES, config_path, sanitize
from barnabas.kafka_tools.configs import quotas, scram
from barnabas.kafka_tools.shared.common import ToolError, names_servers
from barnabas.kafka_tools.shared.parser import Parsed
from barnabas.kafka_tools.zookeeper.lookup import is_there
from barnabas.kafka_tools.zookeeper.nodes import Refusal, Tree
from barnabas.kafka_tools.zookeeper.trees import NO_VERSION, open_tree
from barnabas.security.sasl.scram import decode_credential, encode_credential, new_credential

CHANGE_PREFIX: Final = f"{CONFIG_CHANGES}/config_change_"


def users_of(parsed: Parsed) -> Users | None:
    """The users in the ZooKeeper that the options name; None if they name brokers, or no ZooKeeper answers.

    Raises ToolError, OSError.
    """
    zookeeper = parsed.get("zookeeper")
    if zookeeper is None or names_servers(parsed) or not is_there(zookeeper):
        return None
    return Users(open_tree(zookeeper, parsed.get("zk-tls-config-file")))


class Users:
    """The users of a cluster in its ZooKeeper, with their SCRAM credentials and quotas."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def close(self) -> None:
        """End the session."""
        self._tree.close()

    def read(self, user: str) -> dict[str, str]:
        """Quotas and credentials of a user, by name. Raises ToolError."""
        return self._read(config_path("users", sanitize(user)))[0]

    def _read(self, path: str) -> tuple[dict[str, str], int]:
        try:
            data, facts = self._tree.get(path)
        except Refusal:
            return {}, NO_VERSION
        try:
            config: Any = json.loads(data or b"{}").get("config", {})
        except (ValueError, AttributeError):
            raise ToolError(f"{path} does not hold the options of a user") from None
        return {str(name): str(value) for name, value in config.items()}, facts.version

    def change(self, user: str, add: Mapping[str, str], remove: Sequence[str]) -> None:
        """Set and remove options of a user, and tell the brokers that run. Raises ToolError."""
        path = config_path("users", sanitize(user))
        known, version = self._read(path)
        wanted = {name: value for name, value in {**known, **add}.items() if name not in remove}
        data = json.dumps({"version": 1, "config": wanted}, separators=(",", ":")).encode()
        notice = json.dumps(
            {"version": 2, "entity_path": path.removeprefix("/config/")}, separators=(",", ":")
        )
        try:
            if version != NO_VERSION:
                self._tree.set(path, data, version)
            else:
                for parent in ("/config", "/config/users", CONFIG_CHANGES):
                    self._make(parent)
                self._tree.create(path, data, False, False, None)
            self._tree.create(CHANGE_PREFIX, notice.encode(), False, True, None)
        except Refusal as refusal:
            raise ToolError(f"{refusal}; try again") from None

    def _make(self, path: str) -> None:
        try:
            self._tree.get(path)
        except Refusal:
            self._tree.create(path, b"", False, False, None)

    def show(self, user: str) -> None:
        """Print what a user has, as for a user that brokers describe. Raises ToolError."""
        configs = self.read(user)
        limits = {name: value for name, value in configs.items() if name not in scram.MECHANISMS}
        if limits:
            shown = ", ".join(f"{name}={value}" for name, value in sorted(limits.items()))
            print(f"Quota configs for {quotas.title({'user': user})} are {shown}")
        credentials = {name: decode_credential(configs[name]) for name in scram.MECHANISMS if name in configs}
        if credentials:
            shown = ", ".join(
                f"{name}=iterations={credential.iterations if credential else 'unknown'}"
                for name, credential in credentials.items()
            )
            print(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def credentials_of(texts: Mapping[str, str]) -> dict[str, str]:
    """Credentials as ZooKeeper holds them, from `iterations=8192,password=secret` by mechanism. Raises ToolError."""
    credentials = {}
    for name, text in texts.items():
        iterations, password = scram.parse_fields(name, text)
        credentials[name] = encode_credential(
            new_credential(name, password, os.urandom(scram.SALT_BYTES), iterations)
        )
    return credentials
