"""Settings and modes of subjects, contexts and the whole registry; and contexts themselves."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from barnabas.registry import decisions, records, requests
from barnabas.registry.api.call import RegistryCall
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.service import Answer
from barnabas.registry.subjects import GLOBAL, context_name


async def get_config(call: RegistryCall) -> Any:
    """GET /config[/{subject}]."""
    scope = call.scope()
    config = call.state.configs.get(scope)
    if scope == GLOBAL or call.flag("defaultToGlobal"):
        return records.config_json(call.state.config(scope))
    if config is None:
        raise RegistryError(
            Code.SUBJECT_CONFIG_NOT_FOUND,
            f"Subject '{scope}' does not have subject-level compatibility configured",
        )
    return records.config_json(config)


async def put_config(call: RegistryCall) -> Any:
    """PUT /config[/{subject}]."""
    body = await call.body()
    config, scope = requests.read_config(body), call.scope()
    return await call.change(lambda: decisions.decide_config(call.state, scope, config, body))


async def delete_config(call: RegistryCall) -> Any:
    """DELETE /config[/{subject}]."""
    scope = call.scope()
    return await call.change(lambda: decisions.decide_delete_config(call.state, scope))


async def get_mode(call: RegistryCall) -> Any:
    """GET /mode[/{subject}]."""
    scope = call.scope()
    if scope == GLOBAL or call.flag("defaultToGlobal"):
        return {"mode": call.state.mode(scope).value}
    mode = call.state.modes.get(scope)
    if mode is None:
        raise RegistryError(
            Code.SUBJECT_MODE_NOT_FOUND, f"Subject '{scope}' does not have subject-level mode configured"
        )
    return {"mode": mode.value}


async def put_mode(call: RegistryCall) -> Any:
    """PUT /mode[/{subject}]."""
    mode, scope = requests.read_mode(await call.body()), call.scope()
    force = call.flag("force")
    return await call.change(lambda: decisions.decide_mode(call.state, scope, mode, force=force))


async def delete_mode(call: RegistryCall) -> Any:
    """DELETE /mode[/{subject}]."""
    scope, recursive = call.scope(), call.flag("recursive")
    return await call.change(lambda: decisions.decide_delete_mode(call.state, scope, recursive=recursive))


async def list_contexts(call: RegistryCall) -> Any:
    """GET /contexts."""
    prefix = call.text("contextPrefix")
    return call.page([name for name in call.state.context_names() if name.startswith(prefix)])


async def delete_context(call: RegistryCall) -> Any:
    """DELETE /contexts/{name}."""
    name = context_name(call.part("name"))
    reply = await call.change(lambda: decisions.decide_delete_context(call.state, name))
    return reply if isinstance(reply, Answer) else Response(status_code=204)
