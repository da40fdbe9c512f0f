"""`relay usage`: totals of the logged usage, limits and holds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from relay.agents.rate_limits import LimitWindow, RateLimits
from relay.agents.usage import Spent, Tokens
from relay.agents.usage_log import UsageLog, read
from relay.home import Home
from relay.supervision.accounts import AccountHold, Accounts
from support import Relay


def log(
    relay: Relay, name: str, account: str = "default", team: str = "web", agent: str = "claude"
) -> UsageLog:
    path = Path(relay.home, "state", "usage.jsonl")
    path.parent.mkdir(exist_ok=True)
    return UsageLog(path, f"session of {name}", name, team, agent=agent, account=account)


@pytest.fixture
def filled(relay: Relay) -> Relay:
    alice, bob = log(relay, "Alice", "work"), log(relay, "Bob")
    alice.write(1, {"m": Spent(Tokens(100, 10, 5, 6, 6), 1.5), "n": Spent(Tokens(1), 0.0, 1)})
    alice.write(2, {"m": Spent(Tokens(1000, 100), 2.25)})
    bob.write(1, {"n": Spent(Tokens(7, 3), 0.0, 10)})
    return relay


def usage(relay: Relay, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(relay("usage", "--json", *arguments).stdout))


def test_usage_is_totalled_by_agent_and_by_account(filled: Relay) -> None:
    found = usage(filled)
    alice, bob = found["agents"]
    assert (alice["name"], alice["team"], alice["agent"], alice["account"]) == (
        "Alice",
        "web",
        "claude",
        "work",
    )
    assert (alice["turns"], alice["cost"], alice["unpriced_tokens"]) == (3, 3.75, 1)
    assert alice["tokens"] == {
        "input": 1101,
        "output": 110,
        "cache_read": 5,
        "cache_write": 6,
        "cache_write_1h": 6,
        "total": 1222,
    }
    assert alice["models"]["m"]["cost"] == 3.75
    assert (bob["cost"], bob["unpriced_tokens"]) == (None, 10)
    assert [each["account"] for each in found["accounts"]] == ["default", "work"]
    assert found["prices"]


def test_the_table_shows_totals_and_unpriced_tokens(filled: Relay) -> None:
    header, alice, bob, *accounts = filled("usage").stdout.splitlines()
    assert header.split("  ")[0] == "NAME"
    assert alice.endswith("$3.75 +?") and "1,101" in alice
    assert bob.endswith(" ?")
    assert [line.split()[0] for line in accounts] == ["(all)", "(all)"]


def test_entries_are_filtered(filled: Relay) -> None:
    assert [each["name"] for each in usage(filled, "alice")["agents"]] == ["Alice"]
    assert usage(filled, "-t", "other")["agents"] == []
    assert len(usage(filled, "--since", "1h")["agents"]) == 2
    lines = Path(filled.home, "state", "usage.jsonl").read_text().splitlines()
    old = [json.dumps({**json.loads(lines[0]), "time": time.time() - 7200}), *lines[1:]]
    Path(filled.home, "state", "usage.jsonl").write_text("\n".join(old) + "\n{torn\n\n[]\n")
    assert usage(filled, "Alice", "--since", "1h")["agents"][0]["turns"] == 2
    assert "No matching usage" in filled("usage", "Zoe").stdout
    assert "not a valid time" in filled("usage", "--since", "yesterday", check=False).stderr


def test_a_new_price_applies_to_old_turns_too(filled: Relay) -> None:
    Path(filled.home, "config").mkdir(exist_ok=True)
    Path(filled.home, "config", "prices.toml").write_text('[models]\n"n" = { input = 1e6, output = 0 }\n')
    alice, bob = usage(filled)["agents"]
    assert (alice["cost"], bob["cost"]) == (4.75, 7.0)
    assert (alice["unpriced_tokens"], bob["unpriced_tokens"]) == (0, 0)


def test_the_newest_limits_and_holds_of_each_account_are_shown(filled: Relay) -> None:
    now = time.time()
    for name, at, window in (
        ("Carol", now - 60, LimitWindow(42.4, 300, now + 3600)),
        ("Dave", now - 90, LimitWindow(10.0, 300, now + 3600)),
        ("Zoe", now - 60, LimitWindow(99.0, 10080, now - 1)),
    ):
        usage_log = log(filled, name, "work" if name == "Zoe" else "default", agent="codex")
        usage_log.write(1, {}, RateLimits(at, (window,)))
    Accounts(Home.from_env(filled.environment)).hold(
        AccountHold("third", "rate_limited", "limit reached", "Eve", now, now + 7200)
    )
    found = usage(filled)
    assert [
        (each["account"], each["agent"], each["windows"][0]["used_percent"]) for each in found["limits"]
    ] == [
        ("default", "codex", 42.4),
        ("work", "codex", 99.0),
    ]
    (hold,) = found["holds"]
    assert (hold["account"], hold["until"]) == ("third", now + 7200)
    *_, first, second, third = filled("usage").stdout.splitlines()
    assert first.startswith("Limits of default (codex): 5 h 42 % used, resets ")
    assert second.startswith("Limits of work (codex): weekly has been reset; as of ")
    assert third.startswith("The account third is held until ")
    assert usage(filled, "Zoe")["holds"] == []


def test_a_hold_is_shown_before_any_usage(relay: Relay) -> None:
    Accounts(Home.from_env(relay.environment)).hold(
        AccountHold("work", "unauthorized", "", "Eve", time.time())
    )
    assert relay("usage").stdout == (
        "No agent has used any tokens yet.\nThe account work is held: not logged in (reported by Eve).\n"
    )


def test_a_log_reads_back_its_own_entries(relay: Relay) -> None:
    first, other = log(relay, "Alice"), log(relay, "Bob")
    spent = Spent(Tokens(1, 2, 3, 4, 4), 0.25, 0)
    first.write(1, {"m": spent})
    other.write(9, {"m": spent})
    first.write(2, {"m": spent, "n": Spent(Tokens(1), 0.0, 1)})
    assert first.written() == (3, {"m": spent + spent, "n": Spent(Tokens(1), 0.0, 1)})


def test_damaged_entries_are_skipped(relay: Relay) -> None:
    log(relay, "Alice").write(1, {"m": Spent(Tokens(1))})
    path = Path(relay.home, "state", "usage.jsonl")
    good = json.loads(path.read_text())
    for change in ({"time": "x"}, {"models": 3}, {"models": {"m": 3}}, {"turns": -1}, {"name": 3}):
        with path.open("a") as file:
            file.write(json.dumps({**good, **change}) + "\n")
    with path.open("a") as file:
        file.write('{"event": "usage"}\n\xff\n')
    assert (
        sum(entry.turns for entry in read(path)) == 3
    )  # the valid one, one without models, one without a name
