"""Pairs an agent's own record with its screen, each text once, in any order of arrival."""

from __future__ import annotations

from collections.abc import Callable

from relay.place import TERMINAL, Place

MOST = 2_000
"""Maximum texts on each side that wait for their counterparts; the oldest are dropped first."""

ALIKE = 40
"""Latest texts on each side that are compared for likeness, which takes longer than equality."""

NOWHERE = Place(TERMINAL, -1)


class Alignment:
    """Texts of one kind, reduced to what a screen does not change.

    The record has no gaps: a text that the screen showed before a recorded one is recorded, too, or was never
    said.

    alike: returns the part of a recorded text still to be shown if the shown text is a form of it; else None.

    last:   the place on the screen of the last text that the record has.
    paired: the places of texts that are the same in the record. The owner removes those no longer needed.
    """

    def __init__(self, alike: Callable[[str, str], str | None]) -> None:
        self.last = NOWHERE
        self.paired: set[Place] = set()
        self._alike = alike
        self._shown: list[tuple[str, Place]] = []  # after `last`
        self._recorded: list[list[str]] = [[], []]  # and not shown: in the previous turn, and in this one

    @property
    def recorded(self) -> list[str]:
        """Texts that the record has and the screen has yet to show."""
        return [text for turn in self._recorded for text in turn]

    def record(self, text: str) -> None:
        for number, (shown, place) in enumerate(self._shown):
            if shown == text:
                self.last = place
                self.paired.add(place)
                del self._shown[: number + 1]
                return
        self._recorded[-1].append(text)
        del self._recorded[-1][:-MOST]

    def show(self, text: str, place: Place) -> None:
        if self.has(text):
            self.paired.add(place)
            self.pass_to(place)
            return
        self._shown.append((text, place))
        del self._shown[:-MOST]

    def has(self, text: str, *, before: bool = True) -> bool:
        """Return True if the record has `text`, which is shown now. before: search the previous turn, too."""
        for turn in self._recorded if before else self._recorded[-1:]:
            if text in turn:
                turn.remove(text)
                return True
        return False

    def has_alike(self, text: str) -> bool:
        """Return True if the record has a text of which `text`, shown now, may be a form."""
        for turn in self._recorded:
            for number, recorded in enumerate(turn[-ALIKE:], max(len(turn) - ALIKE, 0)):
                if (rest := self._alike(recorded, text)) is not None:
                    turn[number : number + 1] = [rest] if rest else []
                    return True
        return False

    def pass_to(self, place: Place) -> None:
        """Treat what was shown up to `place` as recorded, or as never said."""
        self.last = max(self.last, place)
        self._shown = [each for each in self._shown if each[1] > self.last]

    def settle(self) -> None:
        """Pair shown texts with recorded ones that are merely alike."""
        for text, place in self._shown[-ALIKE:]:
            if self.has_alike(text):
                self.pass_to(place)

    def turn(self) -> None:
        """Begin another turn: texts recorded in the turn before the last one will not be shown any more."""
        self.settle()
        self._recorded = [*self._recorded[1:], []]

    def linger(self) -> None:
        """Expect the recorded texts for one more turn, as the end of a turn may be reported twice."""
        self._recorded.insert(0, [])
