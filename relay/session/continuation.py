"""Having an agent go on with a turn that it has ended: how often in a row, and whether it was read.

A hook's reply that was printed is not yet read: only what the agent does next shows that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relay.agents.hook_reply import Fate, Settle
from relay.session.turn import Turn
from relay.storage.journal import Journal, preview

PROOF = 5.0
"""Seconds after which an agent that was told to go on and stands at its prompt has not read it."""

GO_ON = "Go on."
"""What an agent goes on with where a handler or a rule wants that and gives no text."""

CAPPED = (
    "a handler of agent_end, or a rule, wants the agent to go on once more; it has done so {most} times in a "
    "row, which is the most (continuations in relay.toml). It is left at its prompt."
)

RUNAWAY = (
    "a handler of agent_end, or a rule, wants the agent to go on, but its messages of this turn are held as "
    "those of a runaway (`relay messages --state held`). It is left at its prompt."
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a turn, as far as it may be gone on with.

    continuations: how often in a row it was; most: how often it may be.
    runaway:       messages that the agent sent in this turn are held by the runaway guard.
    halted:        a rule or a handler has stopped this turn.
    """

    continuations: int
    most: int
    runaway: bool = False
    halted: bool = False

    @property
    def capped(self) -> bool:
        """Whether there may be no more until somebody submits a prompt."""
        return self.runaway or self.halted or self.continuations >= self.most

    @property
    def at_max_iter(self) -> bool:
        """Whether the next continuation would be the last, or one too many; the first never counts so."""
        return self.continuations >= max(self.most - 1, 1)

    @property
    def turn_end_reason(self) -> str:
        """`doom_loop`, `max_iterations` or `final_response` (R33)."""
        if self.runaway:
            return "doom_loop"
        return "max_iterations" if self.at_max_iter else "final_response"

    def facts(self) -> dict[str, Any]:
        """What rules of Stop are told of it."""
        return {
            "stop_hook_active": self.continuations > 0,
            "turn_end_reason": self.turn_end_reason,
            "at_max_iter": self.at_max_iter,
        }

    @property
    def refusal(self) -> str:
        """What the person is told where it is `capped`."""
        return RUNAWAY if self.runaway else CAPPED.format(most=self.most)


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
    def ending(self) -> Ending:
        """How the turn ends that is about to end."""
        turn = self._turn
        return Ending(turn.continuations, self.most, turn.runaway, bool(turn.halted))

    def refuse(self, texts: list[str]) -> None:
        """What the handlers wanted the agent to go on with is not given; the person hears of it once."""
        if texts and not self._told:
            self._told = True
            self._journal.write("continuation_capped", most=self.most, text=preview(texts[0]))
            self._tell_person(self.ending.refusal)

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
