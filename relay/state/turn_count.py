"""The number of an agent's turns, each counted once, across all of its sessions."""

from __future__ import annotations

from relay.state.readiness import Readiness
from relay.state.turn import Turn
from relay.storage.progress import Progress

NOTE = "turn"


class TurnCount:
    """Counts the turns that TurnBegan reports, ignoring repeats.

    TurnBegan repeats a turn when the screen showed it before the agent's hooks started to report, and when
    another session rereads the ring. A session that rereads it submits nothing, so a turn that relay itself
    begins is no repeat.

    turns: the number begun so far.
    """

    def __init__(self, turn: Turn, progress: Progress) -> None:
        self._turn = turn
        self._progress = progress
        self.turns = 0
        self._in_turn = self._told_again = self._submits = False
        # Ring positions of the last keys, and of the keys before the last counted turn.
        self._keys_at = self._counted_to = -1

    def resume(self) -> None:
        """Continue with the count of the earlier sessions."""
        places = [int(note["at"]) for note in self._progress.notes if note["note"] == NOTE]
        self.turns, self._counted_to = len(places), max(places, default=-1)

    def keys(self, position: int) -> None:
        self._keys_at = position

    def submits(self) -> None:
        """Record that relay is about to submit a text, whose keys follow."""
        self._submits = True

    def state(self, before: str, after: str) -> None:
        """Record a change of the agent's state."""
        if before == Readiness.WORKING and after in {Readiness.READY, Readiness.FAILED}:
            self._in_turn = False

    def hooks(self, *, alive: bool) -> None:
        """Record that the agent's hooks have started or stopped reporting."""
        self._told_again = alive and self._in_turn

    def begin(self) -> None:
        """Count a turn that begins, unless it was already counted."""
        again, self._told_again, self._in_turn = self._told_again, False, True
        new = self._submits or self._turn.hooks.alive or self._keys_at > self._counted_to
        self._submits = False
        if again or not new:
            return
        self.turns += 1
        self._counted_to = max(self._counted_to, self._keys_at)
        self._progress.note(NOTE, at=self._keys_at)
