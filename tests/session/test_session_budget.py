"""The budget of a turn: counted, reported once, and never a reason to withhold a text (R76, R77)."""

from __future__ import annotations

import json

import pytest

from relay.injection.budget import Budget, tokens
from session.fake_agent import FakeAgent, project, settings
from session.test_session_user import Terminals
from support import Relay, wait_until

LOUD = """
from relay import on, pattern

@pattern("lint")
def lint(target, message, ctx):
    return "x" * int(message)
"""


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("x", 1), ("xxxx", 1), ("xxxxx", 2), ("漢" * 4000, 1000)]
)
def test_a_token_is_four_characters(text: str, count: int) -> None:
    """R76"""
    assert tokens(text) == count


def test_exceeding_the_budget_is_reported_once_a_turn() -> None:
    """R76, R77: each turn starts from zero."""
    budget = Budget(1000)
    assert budget.spend("x" * 4000, "ruff") is None and not budget.exceeded
    assert [budget.spend("x", "mypy") for _ in range(3)] == [
        "hooks have injected about 1,001 tokens in this turn, more than 1,000 (injection_budget in "
        "relay.toml); the last was mypy. The agent still receives them.",
        None,
        None,
    ]
    assert budget.exceeded and budget.spent == 1003
    budget.new_turn()
    assert not budget.exceeded and budget.spent == 0
    assert budget.spend("x" * 4001, "ruff") is not None


def test_a_budget_of_zero_means_no_limit() -> None:
    """R76"""
    budget = Budget(0)
    assert budget.spend("x" * 1_000_000, "ruff") is None and not budget.exceeded


def test_a_session_warns_but_still_injects(relay: Relay) -> None:
    """R76: the user is warned, the audit says so, the agent gets the text; messages do not count."""
    settings(relay, "injection_budget = 10\n")
    folder = project(relay, LOUD)
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    relay("send", "Alice", "m" * 100)
    alice.receives("m" * 100)
    alice.say("@lint:all 40")
    alice.receives("] " + "x" * 40 + " [")
    alice.say("@lint:all 44")
    alice.receives("] " + "x" * 44 + " [")
    assert "about 21 tokens in this turn, more than 10" in alice.notice("hooks have injected")
    (notice,) = [e for e in alice.events("notice") if "hooks have injected" in e["text"]]
    assert notice["level"] == "warning"

    def entries() -> list[tuple[int, bool]]:
        found = json.loads(relay("audit", "--to", "Alice", "--json").stdout)
        return [(entry["tokens"], entry["over_budget"]) for entry in found]

    wait_until(lambda: len(entries()) == 3, message=lambda: str(entries()))
    assert entries() == [(25, False), (10, False), (11, True)]


def test_user_input_to_a_plain_program_starts_a_turn(relay: Relay) -> None:
    """R77: the end of such a program's turn is not visible."""
    settings(relay, "injection_budget = 10\n")
    terminals = Terminals(relay)
    try:
        alice, user = terminals("Alice", cwd=project(relay, LOUD))

        def lint(length: int) -> None:
            alice.say(f"@lint:all {length}")
            alice.receives(f"] {'x' * length} [")

        def warnings() -> list[str]:
            return [e["text"] for e in alice.events("notice") if "hooks have injected" in e["text"]]

        lint(44)
        lint(45)
        wait_until(lambda: len(warnings()) == 1)
        user.type("go on\n")
        alice.receives("go on")
        lint(48)
        wait_until(lambda: len(warnings()) == 2, message=lambda: str(warnings()))
        assert "about 12 tokens" in warnings()[1]
        alice.exit()
        user.end()
    finally:
        for opened in terminals.opened:
            opened.close()
