"""Changes of options, quotas, credentials and access rules: decided over the image, made by the executor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.cores import links
from barnabas.cores.acl import Resource, Rule, Rules, decide_acls
from barnabas.cores.controller import decide_config, require_topic
from barnabas.cores.quota_entities import Entity, altered_quotas, entity_config

if TYPE_CHECKING:
    from barnabas.broker.cluster.configs import Configs
    from barnabas.broker.cluster.executor import Executor
    from barnabas.cores.znode_ops import Op

log = logging.getLogger("barnabas.controller")

AlteredConfig = tuple[str, str, dict[str, str]]
"""Kind, entity, and the entity's own texts after the change."""


class ConfigChanges:
    """See the module."""

    def __init__(
        self,
        executor: Executor,
        configs: Configs,
        config_changed: Callable[[str, str], None],
        acls_changed: Callable[[Iterable[Resource]], None],
    ) -> None:
        """config_changed, acls_changed: called after a change has been made."""
        self._executor = executor
        self._image = executor.image
        self._configs = configs
        self._config_changed = config_changed
        self._acls_changed = acls_changed

    async def alter_configs(
        self,
        resource_type: int,
        name: str,
        changes: Sequence[tuple[str, int, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change a resource's own options. changes: (option, operation, value). Raises ApiError."""
        await self._change_config(lambda: self._configs.altered(resource_type, name, changes), validate_only)

    async def replace_configs(
        self,
        resource_type: int,
        name: str,
        texts: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace all of a resource's own options. Raises ApiError."""

        def altered() -> AlteredConfig:
            changes = self._configs.replacing(resource_type, name, texts)
            return self._configs.altered(resource_type, name, changes)

        await self._change_config(altered, validate_only)

    async def seal_passwords(self, node_id: int) -> None:
        """Encrypt those of a broker's dynamic passwords that are not encrypted with the current secret. Raises ApiError.

        Without a secret, a warning names the options whose passwords the tree contains in plain text.
        """
        plain = self._configs.plain_passwords(node_id)
        if plain:
            log.warning(
                "dynamic passwords are stored in plain text in the metadata tree; to encrypt them, set "
                "password.encoder.secret in this broker's properties and restart it",
                extra={"broker": node_id, "options": ", ".join(plain)},
            )

        def altered() -> AlteredConfig:
            sealed = self._configs.sealed_again(node_id)
            kind, name = "brokers", str(node_id)
            return kind, name, dict(self._image.config(kind, name)) if sealed is None else sealed

        if self._configs.sealed_again(node_id) is not None:
            await self._change_config(altered, validate_only=False)
            log.info(
                "dynamic passwords are encrypted with password.encoder.secret", extra={"broker": node_id}
            )

    async def alter_quotas(
        self, entity: Entity, changes: Sequence[tuple[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set (or with None remove) quotas of a user, client id or address. Raises ApiError."""
        kind, name = entity_config(entity)

        def altered() -> AlteredConfig:
            return kind, name, altered_quotas(entity, self._image.config(kind, name), changes)

        await self._change_config(altered, validate_only)

    async def alter_credentials(self, user: str, alter: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Change a user's SCRAM credentials; its quotas are kept. Raises ApiError, as `alter` may."""
        kind, name = entity_config({"user": user})

        def altered() -> AlteredConfig:
            return kind, name, alter(dict(self._image.config(kind, name)))

        await self._change_config(altered, validate_only=False)

    async def alter_acls(self, alter: Callable[[Rules], Mapping[Resource, frozenset[Rule]]]) -> None:
        """Change access rules. alter: from all current rules to the new rules of the changed resources. Raises ApiError."""
        changed: Mapping[Resource, frozenset[Rule]] = {}

        def decide() -> Iterable[Op]:
            nonlocal changed
            changed = alter(self._image.acls)
            return decide_acls(self._image.acl_versions, changed)

        async def change() -> None:
            await self._executor.change(decide)
            self._acls_changed(changed)

        await self._executor.run(change)

    async def change(self, decide: Callable[[], Iterable[Op]]) -> None:
        """Change nodes that affect nothing but the image. decide: the changes, from the current image. Raises ApiError."""
        await self._executor.run(lambda: self._executor.change(decide))

    async def alter_link(
        self, name: str, alter: Callable[[dict[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Change a link to another cluster; an empty result removes it. Raises ApiError, as `alter` may."""

        def altered() -> AlteredConfig:
            return links.KIND, name, alter(dict(self._image.config(links.KIND, name)))

        await self._change_config(altered, validate_only)

    async def set_link(self, topic: str, link: str) -> None:
        """From now on `link` mirrors a topic; empty: it is a topic like any other. Raises ApiError."""

        def altered() -> AlteredConfig:
            require_topic(self._image, topic)
            texts = dict(self._image.config("topics", topic))
            texts.pop(links.TOPIC_OPTION, None)
            return "topics", topic, texts | ({links.TOPIC_OPTION: link} if link else {})

        await self._change_config(altered, validate_only=False)

    async def _change_config(self, altered: Callable[[], AlteredConfig], validate_only: bool) -> None:
        """altered: (kind, entity, its texts after the change), evaluated again for every attempt."""
        changed: tuple[str, str] | None = None

        def decide() -> Iterable[Op]:
            nonlocal changed
            kind, entity, texts = altered()
            changed = kind, entity
            return decide_config(self._image, kind, entity, texts)

        async def change() -> None:
            if validate_only:
                altered()
                return
            await self._executor.change(decide)
            assert changed is not None
            self._config_changed(*changed)

        await self._executor.run(change)
