"""Every misbehaving agent, stopped at every moment by every route, on a jumped clock."""

from __future__ import annotations

import pytest
import scenes
from jumped import Room, jumped

from turncell.testing import StopCase
from turncell.testing.promises import violations


@pytest.mark.stops(250)
@pytest.mark.parametrize("case", scenes.CASES, ids=str)
@jumped
async def test_a_stop_keeps_its_promises(room: Room, case: StopCase) -> None:
    assert violations(await scenes.stop(room, case)) == []
