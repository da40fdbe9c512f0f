"""The texts that a door has taken without a proof, and that are given again by another way.

One of them may still come by the door. The agent's prompt hook sees its mark then: the text counts if it is
still waiting, and else it is refused, so the model gets it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.dataclass import asdict, dataclass
from relay.injection.injection import Injection
from relay.injection.queue import InjectionQueue
from relay.storage.progress import Progress

_NOTE = "late"


@dataclass(slots=True)
class _Late:
    """The injections `ids` in the text that ends with `mark`. due: a prompt with the mark may still come."""

    mark: str
    ids: list[str]
    due: bool


class LateTexts:
    """The late texts of one agent, also those of its earlier sessions."""

    def __init__(self, queue: InjectionQueue, progress: Progress) -> None:
        self._queue = queue
        self._progress = progress
        self._late: dict[str, _Late] = {}

    def restore(self) -> None:
        """Continue with what earlier sessions noted."""
        for note in self._progress.notes:
            if note["note"] == _NOTE:
                self._late[note["mark"]] = _Late(note["mark"], note["ids"], note["due"])

    def expect(self, mark: str, injections: Sequence[Injection]) -> None:
        """Record that `injections`, offered as a text that ends with `mark`, are given again.

        Of these, only a message keeps its mark: its next prompt is the one given again.
        """
        self._note(_Late(mark, [each.id for each in injections], injections[0].kind == "message"))

    def carried(self, id: str) -> None:
        """Record that the injection `id` was given in a way that no prompt hook sees."""
        for late in self._late.values():
            if late.due and id in late.ids:
                self._change(late, due=False)

    def prompted(self, prompt: str) -> tuple[list[Injection], bool]:
        """Return the waiting injections that `prompt` proves, and whether it repeats what the agent has."""
        for late in self._late.values():
            if late.mark in prompt:
                waiting = [each for each in self._queue if each.id in late.ids]
                repeats = not waiting and not late.due
                self._change(late, due=False)
                return waiting, repeats
        return [], False

    def _change(self, late: _Late, *, due: bool) -> None:
        if late.due is not due:
            late.due = due
            self._note(late)

    def _note(self, late: _Late) -> None:
        self._late[late.mark] = late
        fields: dict[str, Any] = asdict(late)
        self._progress.note(_NOTE, **fields)
