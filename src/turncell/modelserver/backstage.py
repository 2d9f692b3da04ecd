"""What all requests of one server share: the script, how often it has failed, the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from turncell.modelserver.ledger import Ledger
from turncell.modelserver.prompt import Asked
from turncell.modelserver.scenario import Scenario, Script
from turncell.modelserver.steps import HttpError, Step


class Backstage:
    """The shared state; used on the server's thread, the script may be changed from any."""

    def __init__(self, script: Script, history_limit: int) -> None:
        """Play `script`; records keep `history_limit` characters of each string."""
        self.ledger = Ledger()
        self.history_limit = history_limit
        self.closing = False
        self._script = script
        self._failures: Counter[tuple[str, int, int, str]] = Counter()

    @property
    def script(self) -> Script:
        """The script that is played; setting it makes `times` of `HttpError` count afresh."""
        return self._script

    @script.setter
    def script(self, script: Script) -> None:
        self._script = script
        self._failures = Counter()

    def reset(self) -> None:
        """Forget the recorded requests and the failures already played."""
        self.ledger.clear()
        self._failures = Counter()

    def due(self, scenario: Scenario, asked: Asked) -> Iterator[Step]:
        """The steps that are due, as they come up: an error drops out after its `times` times."""
        for place, step in enumerate(scenario.reply(asked.round).steps):
            if not isinstance(step, HttpError) or step.times is None:
                yield step
                continue
            key = (scenario.name, asked.round, place, asked.prompt)
            if self._failures[key] < step.times:
                self._failures[key] += 1
                yield step
