"""The heaviest requests of every API, ten times as heavy as in tests/clients/test_one_victim.py."""

from __future__ import annotations

import pytest

from barnabas.testing import Broker
from barnabas.wire.apis import APIS, OWN_APIS, Api
from tests.clients.test_one_victim import broker as broker
from tests.clients.test_one_victim import longest_turns

pytestmark = pytest.mark.soak

ROWS = 100_000
TURN_CPU_MS_MAX = 500


@pytest.mark.parametrize("api", [*APIS, *OWN_APIS], ids=lambda api: api.name)
def test_no_very_heavy_request_holds_up_the_loop(broker: Broker, api: Api) -> None:
    found = longest_turns(broker, api, ROWS)
    print(api.name, found)
    too_long = {shape: cpu_ms for shape, cpu_ms in found.items() if cpu_ms > TURN_CPU_MS_MAX}
    assert too_long == {}, f"{api.name}: turns of so many ms of CPU"
