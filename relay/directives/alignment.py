"""Pairs an agent's own record with its screen, each text once, in any order of arrival."""

from __future__ import annotations

from collections.abc import Callable

from relay.place import TERMINAL, Place

MOST = 2_000
"""Texts of each side that wait for their counterparts; the oldest go first."""

ALIKE = 40
"""The latest texts of each side between which a likeness is looked for, which takes longer than equality."""

NOWHERE = Place(TERMINAL, -1)


class Alignment:
    """Texts of one kind, reduced to what a screen does not change.

    The record is whole as far as it goes: what the screen showed before a text of it is in it, too, or was
    never said.

    alike: returns what of a recorded text is still to be shown if the shown text is a form of it; else None.

    last:   the place on the screen of the last text that the record has.
    paired: the places of those that are the same in the record. Whoever needs them no more takes them out.
    """

    def __init__(self, alike: Callable[[str, str], str | None]) -> None:
        self.last = NOWHERE
        self.paired: set[Place] = set()
        self._alike = alike
        self._shown: list[tuple[str, Place]] = []  # after `last`
        self._recorded: list[list[str]] = [[], []]  # and not shown: in the turn before, and in this one

    @property
    def recorded(self) -> list[str]:
        """Texts that the record has, and the screen is yet to show."""
        return [text for turn in self._recorded for text in turn]

    def record(self, text: str) -> None:
        """Take a text of the record."""
        for number, (shown, place) in enumerate(self._shown):
            if shown == text:
                self.last = place
                self.paired.add(place)
                del self._shown[: number + 1]
                return
        self._recorded[-1].append(text)
        del self._recorded[-1][:-MOST]

    def show(self, text: str, place: Place) -> None:
        """Take a text of the screen."""
        if self.has(text):
            self.paired.add(place)
            self.pass_to(place)
            return
        self._shown.append((text, place))
        del self._shown[:-MOST]

    def has(self, text: str, *, before: bool = True) -> bool:
        """Return True if the record has `text`, which is shown now. before: perhaps in the turn before."""
        for turn in self._recorded if before else self._recorded[-1:]:
            if text in turn:
                turn.remove(text)
                return True
        return False

    def has_alike(self, text: str) -> bool:
        """Return True if the record has what may be `text`, which is shown now."""
        for turn in self._recorded:
            for number, recorded in enumerate(turn[-ALIKE:], max(len(turn) - ALIKE, 0)):
                if (rest := self._alike(recorded, text)) is not None:
                    turn[number : number + 1] = [rest] if rest else []
                    return True
        return False

    def pass_to(self, place: Place) -> None:
        """Take what was shown up to `place` for what the record has, or what was never said."""
        self.last = max(self.last, place)
        self._shown = [each for each in self._shown if each[1] > self.last]

    def settle(self) -> None:
        """Pair what is shown with what is recorded where they are alike only."""
        for text, place in self._shown[-ALIKE:]:
            if self.has_alike(text):
                self.pass_to(place)

    def turn(self) -> None:
        """Begin another turn: what the record had of the turn before the last one is not shown any more."""
        self.settle()
        self._recorded = [*self._recorded[1:], []]

    def linger(self) -> None:
        """Expect what the record has for a turn longer, as the end of one may be told twice."""
        self._recorded.insert(0, [])
