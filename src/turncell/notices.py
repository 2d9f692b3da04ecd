"""What the user is told of a session whose record is not as it should be."""

from __future__ import annotations

__all__ = ["MISSING", "MOVED", "TAKEN", "TORN", "WENT_ON"]

TAKEN = (
    "The session was taken over: {}.\n"
    "The conversation goes on there. Branch it with --fork NAME, or take it back: --in-use take."
)

MISSING = (
    "No conversation was found under {}, so a new one was started: the agent does not remember "
    "what was said before.\n%agent new NAME --carry {} starts one that knows what the journal has."
)
MOVED = (
    "The agent goes on with this conversation as {}, no longer as {}: that is its id from here on."
)
WENT_ON = (
    "Somebody went on with session {} elsewhere, which this agent does not know, so it was closed. "
    "Nothing was sent.\nRun the cell again: it goes on from there."
)
TORN = (
    "The agent's own record of {} is damaged at its end: the agent was killed as it wrote. What is "
    "missing of the last turn, if anything, is told to it again.\n"
    "%agent new NAME --carry {} starts a session that knows all that the journal has."
)
