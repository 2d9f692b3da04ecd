"""What came of a tool call, whatever shape it comes in."""

from __future__ import annotations

from typing import Any

import pytest

from turncell.backends.claude_outputs import output_of
from turncell.backends.claude_system import Tasks


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (["done"], "done"),
        ({"type": "text", "text": "alone"}, "alone"),
        ([{"type": "text", "text": 5}, None, {"type": "image"}], "5\n\n[image]"),
        ([{"type": "text", "text": ""}], ""),
        (None, ""),
        ("as it is", "as it is"),
    ],
)
def test_content_of_any_shape_costs_no_agent(content: Any, said: str) -> None:
    assert output_of(content, None) == said
    assert output_of("x", {"agentId": "a", "content": [content]}) in (said, str(content))


def test_a_task_that_says_it_runs_is_not_forgotten() -> None:
    tasks = Tasks()
    tasks.read("task_started", {"task_id": "a"}, "turn")
    tasks.read("task_started", {"task_id": "b"}, "turn")
    tasks.read("task_updated", {"task_id": "a", "patch": {"status": "running"}}, "turn")
    tasks.read("task_updated", {"task_id": "b", "patch": {"status": "completed"}}, "turn")
    assert tasks.take("turn") == ["a"]
