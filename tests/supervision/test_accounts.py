"""Held accounts: their files, and how an agent's session watches its account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import RelayError
from relay.eventbus import handles
from relay.features.holds import AccountWatch
from relay.home import Home
from relay.injection.events import MayBegin
from relay.injection.injection import Injection, Kind
from relay.lifecycle import Describe
from relay.state.events import PromptSubmitted, TurnOver
from relay.supervision.accounts import AccountHold, Accounts
from relay.supervision.events import AccountFreed, AccountHeld, Escalate, HoldAccount
from relay.terminal.events import Notify
from supervision.world import World


def hold(at: float = 100.0, until: float | None = None, account: str = "work") -> AccountHold:
    return AccountHold(account, "billing" if until is None else "rate_limited", "No.", "Alice", at, until)


class HeldAccounts:
    """The held accounts of a home, at a time that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.accounts = Accounts(Home.from_env({"RELAY_HOME": str(folder), "HOME": "/"}), lambda: self.now)


def test_a_hold_expires_or_is_released_by_the_user(tmp_path: Path) -> None:
    held = HeldAccounts(tmp_path)
    assert held.accounts.get("work") is None and held.accounts.all() == []
    assert held.accounts.hold(hold(until=200.0))
    assert held.accounts.get("work") == hold(until=200.0)
    assert held.accounts.get("home") is None
    held.now = 200.0
    assert held.accounts.get("work") is None and held.accounts.all() == []
    assert held.accounts.hold(hold(at=200.0))
    held.now = 1e9
    assert held.accounts.all() == [hold(at=200.0)]
    assert held.accounts.release("work") == hold(at=200.0)
    assert held.accounts.release("work") is None


@pytest.mark.parametrize(
    ("first", "second", "replaced"),
    [
        (None, None, False),
        (None, 200.0, False),
        (200.0, None, True),
        (200.0, 300.0, True),
        (200.0, 200.0, False),
        (300.0, 200.0, False),
    ],
)
def test_a_hold_is_only_replaced_by_a_longer_one(
    tmp_path: Path, first: float | None, second: float | None, replaced: bool
) -> None:
    held = HeldAccounts(tmp_path)
    assert held.accounts.hold(hold(until=first))
    assert held.accounts.hold(hold(at=101.0, until=second)) == replaced
    found = held.accounts.get("work")
    assert found is not None and found.until == (second if replaced else first)


def test_a_success_before_the_hold_does_not_end_it(tmp_path: Path) -> None:
    held = HeldAccounts(tmp_path)
    held.accounts.hold(hold(at=100.0))
    assert held.accounts.release("work", since=99.0) is None
    assert held.accounts.release("work", since=101.0) is not None


@given(st.text(min_size=1, max_size=40))
def test_any_text_can_name_an_account(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    folder = tmp_path_factory.mktemp("home")
    held = HeldAccounts(folder)
    assert held.accounts.hold(hold(account=name))
    assert held.accounts.all() == [hold(account=name)]
    assert held.accounts.get(f"{name}x") is None
    inside = (folder / "state" / "accounts").resolve()
    assert all(path.resolve().parent == inside for path in folder.rglob("*.json"))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"account": "work"}', '{"at": "x", "until": []}', "\0"])
def test_a_damaged_file_is_ignored(tmp_path: Path, text: str) -> None:
    held = HeldAccounts(tmp_path)
    held.accounts.hold(hold())
    (path,) = tmp_path.rglob("work.json")
    path.write_text(text)
    assert held.accounts.get("work") is None
    assert held.accounts.hold(hold()) and json.loads(path.read_text())["account"] == "work"


# The account watch of a session.


class Watched(World):
    """A session that watches its account."""

    def __init__(self, folder: Path, name: str = "Alice") -> None:
        super().__init__(folder)
        self.accounts = Accounts(self.home, self.clock.now)
        self.watch = AccountWatch(
            self.bus, self.tasks, self.accounts, account="work", name=name, clock=self.clock
        )
        self.bus.add(self.watch)

    def may_begin(self, kind: Kind) -> bool:
        try:
            asyncio.run(self.bus.ask(MayBegin(Injection("i1", "text", "Bob", kind), begins=True)))
        except RelayError as error:
            assert "relay release --account work" in str(error)
            return False
        return True

    def held(self) -> bool:
        return bool(asyncio.run(self.bus.ask(AccountHeld())))

    def wait_until_freed(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Run the watch until it reports that the account is free. sleep: replaces the clock's."""
        freed, queued = asyncio.Event(), list[Coroutine[Any, Any, object]]()

        class OnFreed:
            @handles(AccountFreed)
            def on(self, _: AccountFreed) -> None:
                freed.set()

        async def sleep_after_queued(seconds: float) -> None:
            while queued:
                await queued.pop(0)
            await sleep(seconds)

        async def scenario() -> None:
            running = asyncio.ensure_future(self.watch.run())
            async with asyncio.timeout(60):
                await freed.wait()
            running.cancel()

        self.clock.sleep = sleep_after_queued  # type: ignore[method-assign]
        self.queue = lambda _, work: queued.append(work)  # type: ignore[method-assign]
        self.bus.add(OnFreed())
        asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["message", "hook", "notice", "task", "nudge", "closing"])
def test_only_tasks_and_nudges_wait_for_a_held_account(tmp_path: Path, kind: Kind) -> None:
    alice, bob = Watched(tmp_path), Watched(tmp_path, "Bob")
    alice.bus.publish(HoldAccount("billing", "No."))
    assert bob.may_begin(kind) == (kind not in {"task", "nudge"})
    assert bob.held()


def test_only_one_agent_escalates_a_held_account(tmp_path: Path) -> None:
    alice, bob = Watched(tmp_path), Watched(tmp_path, "Bob")
    alice.bus.publish(HoldAccount("unauthorized", "Invalid API key"))
    bob.bus.publish(HoldAccount("unauthorized", "Invalid API key"))
    (escalation,) = alice.of(Escalate)
    assert escalation.what == "Alice stopped on an error (not logged in): Invalid API key."
    assert not bob.of(Escalate)
    (shown,) = asyncio.run(bob.bus.ask(Describe(brief=True)))
    assert shown == {"account_hold": "the account work is held: not logged in (reported by Alice)"}


def test_a_usage_limit_is_not_escalated(tmp_path: Path) -> None:
    alice = Watched(tmp_path)
    alice.bus.publish(HoldAccount("rate_limited", "limit", alice.clock.now() + 3600))
    assert not alice.of(Escalate) and alice.held()
    alice.clock.passes(3600)
    assert not alice.held()


def test_the_first_success_after_a_hold_ends_it(tmp_path: Path) -> None:
    alice, bob = Watched(tmp_path), Watched(tmp_path, "Bob")
    bob.clock = alice.clock
    bob.watch._clock = alice.clock
    bob.bus.publish(PromptSubmitted(by_user=True))
    alice.clock.passes(1)
    alice.bus.publish(HoldAccount("unauthorized", "No."))
    bob.bus.publish(TurnOver(well=True))  # its turn started before the hold
    assert alice.held()
    alice.clock.passes(1)
    bob.bus.publish(PromptSubmitted(by_user=True))
    bob.bus.publish(TurnOver(well=False))
    assert alice.held()
    bob.bus.publish(TurnOver(well=True))
    assert not alice.held()


def test_a_success_does_not_end_a_usage_limit(tmp_path: Path) -> None:
    alice = Watched(tmp_path)
    alice.bus.publish(HoldAccount("rate_limited", "limit", alice.clock.now() + 3600))
    alice.clock.passes(1)
    alice.bus.publish(PromptSubmitted(by_user=True))
    alice.bus.publish(TurnOver(well=True))
    assert alice.held()


def test_the_agent_that_hit_a_limit_continues_once_it_is_over(tmp_path: Path) -> None:
    alice = Watched(tmp_path)

    async def sleep(seconds: float) -> None:
        assert alice.of(AccountFreed) == []
        alice.clock.time += seconds

    alice.bus.publish(HoldAccount("rate_limited", "limit", alice.clock.now() + 60))
    alice.wait_until_freed(sleep)
    assert not alice.held()


def test_a_hold_that_cannot_be_written_is_kept_and_retried(tmp_path: Path) -> None:
    """For example on a full disk: only this agent waits, and the user is notified."""
    alice, bob = Watched(tmp_path), Watched(tmp_path, "Bob")
    (tmp_path / "state").mkdir()
    obstacle = tmp_path / "state" / "accounts"
    obstacle.touch()
    alice.bus.publish(HoldAccount("unauthorized", "Invalid API key"))
    (escalation,) = alice.of(Escalate)
    assert escalation.what == "Alice stopped on an error (not logged in): Invalid API key."
    (warning,) = alice.of(Notify)
    assert str(obstacle) in warning.text
    assert alice.held() and not bob.held()
    written = []

    async def sleep(_: float) -> None:
        if obstacle.is_file():
            obstacle.unlink()
        written.append(bob.accounts.release("work"))

    alice.wait_until_freed(sleep)
    assert written[0] is None and written[-1] is not None
    assert len(alice.of(Escalate)) == 1


@pytest.mark.parametrize("later", [False, True])
def test_a_success_ends_a_hold_that_could_not_be_written(tmp_path: Path, later: bool) -> None:
    alice = Watched(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "accounts").touch()
    alice.bus.publish(PromptSubmitted(by_user=True))
    alice.clock.passes(1)
    alice.bus.publish(HoldAccount("unauthorized", "No."))
    alice.clock.passes(1)
    if later:
        alice.bus.publish(PromptSubmitted(by_user=True))
    alice.bus.publish(TurnOver(well=True))
    assert alice.held() is not later
