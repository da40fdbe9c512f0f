"""Having an agent go on with a turn that it has ended: how often in a row, and whether it was read.

A hook's reply that was printed is not yet read: only what the agent does next shows that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay.journal import Journal, preview
from relay.native.reply import Fate, Settle
from relay.session.turn import Turn

PROOF = 5.0
"""Seconds after which an agent that was told to go on and stands at its prompt has not read it."""

CAPPED = (
    "a handler of agent_end wants the agent to go on once more; it has done so {most} times in a row, "
    "which is the most (continuations in relay.toml). It is left at its prompt."
)


class Continuation:
    """The continuations of one agent's turns.

    most:     how many in a row there may be.
    is_ready: whether the agent stands at its prompt. on_over: called when it turns out that it did not go on.
    """

    def __init__(
        self,
        turn: Turn,
        most: int,
        journal: Journal,
        *,
        is_ready: Callable[[], bool],
        on_over: Callable[[], None],
        tell_person: Callable[[str], None],
    ) -> None:
        self.most = most
        self._turn = turn
        self._journal = journal
        self._is_ready = is_ready
        self._on_over = on_over
        self._tell_person = tell_person
        self._told = False
        self._unproved: Settle | None = None

    @property
    def capped(self) -> bool:
        """Whether there may be no more until somebody submits a prompt."""
        return self._turn.continuations >= self.most

    def refuse(self, texts: list[str]) -> None:
        """What the handlers wanted the agent to go on with is not given; the person hears of it once."""
        if texts and not self._told:
            self._told = True
            self._journal.write("continuation_capped", most=self.most, text=preview(texts[0]))
            self._tell_person(CAPPED.format(most=self.most))

    def begin(self, text: str, settle: Settle) -> Settle:
        """The agent is told to go on with `text`. Takes what became of the reply; `settle`s it in time."""
        self._told = False
        self._turn.go_on(text)
        self._journal.write("continued", times=self._turn.continuations, most=self.most)

        def printed(fate: Fate) -> None:
            if fate is not Fate.PRINTED:
                settle(fate)
                return
            self.proved(True)
            self._unproved = settle
            asyncio.get_running_loop().call_later(PROOF, self._look, settle)

        return printed

    def proved(self, read: bool) -> None:
        """What the agent has done shows that it has read what it was told, or that it never will."""
        settle, self._unproved = self._unproved, None
        if settle is not None:
            settle(Fate.PRINTED if read else Fate.UNKNOWN)

    def _look(self, settle: Settle) -> None:
        if self._unproved is not settle:
            return
        ready = self._is_ready()
        self.proved(not ready)
        if ready:
            self._turn.end()
            self._on_over()
