"""Holds the agent's account, and notices when other agents hold it.

HoldAccount ─→ the account's file ─→ escalated once, by the first agent to hold it
                 if it cannot be written, only this agent is held, until that succeeds
MayBegin    ─→ nudges and first prompts wait while it is held
TurnOver    ─→ a turn that began after the hold and ended well releases the account
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from relay.clock import TICK, WallClock
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.injection.events import MayBegin, TryAgain
from relay.lifecycle import Describe
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import PromptSubmitted, TurnBegan, TurnOver
from relay.supervision.accounts import AccountHold, Accounts
from relay.supervision.events import AccountFreed, AccountHeld, Escalate, HoldAccount
from relay.supervision.restart import words
from relay.tasks import Tasks
from relay.terminal.events import Notify

WAITS = frozenset({"task", "nudge"})
"""Kinds of texts that wait while the account is held."""


_CURES = {"unauthorized": "Log in", "billing": "Add credits"}
"""The user's remedy for each class of failure that holds an account."""


class AccountWatch:
    """The account of the agent `name`."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        terminal: AgentTerminal,
        accounts: Accounts,
        *,
        account: str,
        name: str,
        clock: WallClock | None = None,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._terminal = terminal
        self._accounts = accounts
        self._account = account
        self._name = name
        self._clock = clock or WallClock()
        self._turn = 0.0  # when the last turn began
        self._held = asyncio.Event()  # this agent waits for the hold to end
        self._new: AccountHold | None = None  # a hold that is not written yet

    async def run(self) -> None:
        """Publish AccountFreed after each hold that this agent ran into, even in an earlier session."""
        self._held.set()
        while True:
            await self._held.wait()
            while await self._hold() is not None:
                await self._clock.sleep(TICK)
                if self._new is not None:
                    self._tasks.queue("its account", self._try_again())
            self._held.clear()
            self._bus.publish(AccountFreed())
            self._bus.publish(TryAgain())

    @handles(HoldAccount)
    def hold(self, event: HoldAccount) -> None:
        now = self._clock.now()
        self._new = new = AccountHold(self._account, event.cls, event.reason, self._name, now, event.until)
        self._tasks.queue("its account", self._begin(event, new))

    async def _begin(self, event: HoldAccount, new: AccountHold) -> None:
        try:
            fresh = await self._write(new)
        except RelayError as error:
            fresh = True  # as far as this agent knows
            others = f"Meanwhile, other agents of the account {self._account} continue."
            self._bus.publish(Notify(f"{error} {others}", "warning"))
        self._held.set()
        if fresh and event.until is None:
            detail = f": {event.reason}" if event.reason else ""
            what = f"{self._name} stopped on an error ({words(event.cls)}){detail}".rstrip(".")
            first = _CURES.get(event.cls, "See to it")
            how = (
                f"relay holds all agents of the account {self._account}. {first}, and give it a prompt "
                f"(`relay attach {self._name}`): they go on once a turn ends well, or at "
                f"`relay release --account {self._account}`."
            )
            self._bus.publish(Escalate(f"{what}.", how))

    async def _write(self, new: AccountHold) -> bool:
        """Write a hold; return False if the account is already held for at least as long."""
        fresh = await asyncio.to_thread(self._accounts.hold, new)
        if self._new is new:
            self._new = None
        return fresh

    async def _try_again(self) -> None:
        if self._new is not None:
            with suppress(RelayError):  # it has been reported
                await self._write(self._new)

    @handles(PromptSubmitted, TurnBegan)
    def begins(self, _: object) -> None:
        if not self._terminal.replaying:
            self._turn = self._clock.now()

    @handles(TurnOver)
    def over(self, event: TurnOver) -> None:
        if event.well and self._turn:
            self._tasks.queue("its account", self._release(self._turn))

    async def _release(self, since: float) -> None:
        held = await self._hold()
        if held is not None and held.until is None:
            if held is self._new and held.at <= since:
                self._new = None
            await asyncio.to_thread(self._accounts.release, self._account, since=since)

    async def _hold(self) -> AccountHold | None:
        if self._new is not None and self._new.active(self._clock.now()):
            return self._new
        return await asyncio.to_thread(self._accounts.get, self._account)

    @answers(AccountHeld)
    async def is_held(self, _: AccountHeld, __: object) -> AccountHold | None:
        return await self._hold()

    @answers(MayBegin)
    async def may_begin(self, question: MayBegin, _: object) -> None:
        if question.injection.kind in WAITS and (held := await self._hold()) is not None:
            raise RelayError(f"{held}. `relay release --account {self._account}` ends that.")

    @answers(Describe)
    async def describe(self, _: Describe, __: object) -> dict[str, Any] | None:
        held = await self._hold()
        return None if held is None else {"account_hold": str(held)}
