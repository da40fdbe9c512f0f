"""`relay audit`: who injected what into whom, when, and from which rule or message (R75)."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import pytest

from relay.cli.audit import moment
from relay.home import Home
from relay.injection import audit_log
from relay.injection.audit_log import AuditLog, Entry
from relay.storage import journal
from support import Relay


def _write(relay: Relay, *entries: Entry, name: str = "Alice", session: str = "s1") -> None:
    home = Home.from_env(relay.environment).ensure()
    log = AuditLog(home.audit, session, name, "default")
    for entry in entries:
        log.write(entry)


def _ids(relay: Relay, *options: str) -> list[str]:
    return [entry["id"] for entry in json.loads(relay("audit", "--json", *options).stdout)]


HOOK = Entry(
    "h1",
    "hook",
    "ruff",
    hook_event="PostToolUse",
    place="/p/x/hooks.json:12",
    injection_size=245,
    injection_role="system",
    delivered_role="user",
    route="typed",
    result="injected",
    text="line 42\nis too long",
    over_budget=True,
)
MESSAGE = Entry("abcdef0123456789", "message", "Bob", channel="ops", result="uncertain", detail="not seen")
REFUSED = Entry("h2", "hook", "mypy", place="/p/y/hooks.json:7", result="rejected", detail="too\x1b[2J large")
CLOSING = Entry("c1", "closing", "relay", result="untyped", text="Save.")


def test_the_table_shows_source_target_origin_route_and_text(relay: Relay) -> None:
    """R75: newest last."""
    _write(relay, HOOK, MESSAGE, REFUSED, CLOSING)
    one, two, three, four = relay("audit").stdout.splitlines()
    assert "ruff → Alice" in one and "hook PostToolUse x/hooks.json:12" in one
    assert "injected (typed, as user instead of system)" in one and "245 B" in one
    assert one.endswith("line 42 is too long  [over the budget]")
    assert "Bob → Alice" in two and "message abcdef01 in #ops" in two
    assert "uncertain" in two and "[not seen]" in two
    assert "(not shown)" in three and "\x1b" not in three and "too␛[2J large" in three
    assert "closing" in four and "untyped" in four


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), ["h1", "abcdef0123456789", "h2", "c1", "other"]),
        (("--to", "alice"), ["h1", "abcdef0123456789", "h2", "c1"]),
        (("--to", "Nobody"), []),
        (("--from", "bob"), ["abcdef0123456789"]),
        (("--from", "ruff"), ["h1", "other"]),
        (("--from", "hooks.json"), ["h1", "h2", "other"]),
        (("--from", "hooks.json:12"), ["h1", "other"]),
        (("--from", "/p/y/hooks.json"), ["h2"]),
        (("--failed",), ["abcdef0123456789", "h2", "c1"]),
        (("-n", "2"), ["c1", "other"]),
        (("--since", "1h"), ["h1", "abcdef0123456789", "h2", "c1", "other"]),
        (("--since", "2999-01-01"), []),
        (("--from", "ruff", "--to", "Carol"), ["other"]),
    ],
)
def test_entries_are_filtered(relay: Relay, options: tuple[str, ...], ids: list[str]) -> None:
    """R75"""
    _write(relay, HOOK, MESSAGE, REFUSED, CLOSING)
    _write(
        relay, Entry("other", "hook", "ruff", place=HOOK.place, result="injected"), name="Carol", session="s2"
    )
    assert _ids(relay, *options) == ids


def test_the_latest_entries_are_shown_and_the_others_counted(relay: Relay) -> None:
    _write(relay, *(Entry(f"h{number}", "hook", "ruff", result="injected") for number in range(60)))
    shown = relay("audit")
    assert len(shown.stdout.splitlines()) == 50 and "(10 earlier injections omitted" in shown.stderr
    assert len(relay("audit", "--all").stdout.splitlines()) == len(_ids(relay)) == 60


def test_an_empty_audit_says_so(relay: Relay) -> None:
    assert "Nothing has been injected" in relay("audit").stderr
    assert "No injection matches" in relay("audit", "--failed").stderr
    assert _ids(relay) == []


def test_rotated_logs_are_kept_and_read_in_order(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """R75: only new injections push out old ones, and only after several generations."""
    monkeypatch.setattr(journal, "MAX_BYTES", 1000)
    entries = [Entry(f"h{number}", "hook", "ruff", text="x" * 400, result="injected") for number in range(12)]
    _write(relay, *entries)
    home = Home.from_env(relay.environment)
    assert len(list(home.state.glob("audit.jsonl.*"))) >= 3
    assert _ids(relay) == [entry.id for entry in entries]
    _write(relay, *(Entry(f"i{number}", "hook", "ruff", text="x" * 1000) for number in range(30)))
    assert len(list(home.state.glob("audit.jsonl.*"))) == audit_log.GENERATIONS
    assert _ids(relay)[-1] == "i29"


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"event": "injection"}',
        '{"event": "injection", "id": 1, "kind": "hook", "source": "x"}',
        '{"event": "other", "id": "x"}',
        "no json",
        '{"event": "injection", "id": "torn", "kind": "ho',
    ],
)
def test_an_invalid_line_is_skipped(relay: Relay, line: str) -> None:
    _write(relay, HOOK)
    home = Home.from_env(relay.environment)
    with open(home.audit, "a") as file:
        file.write(line + "\n")
    _write(relay, CLOSING)
    assert _ids(relay) == ["h1", "c1"]


@pytest.mark.parametrize(
    ("text", "ago"), [("30s", 30), ("2m", 120), ("1.5h", 5400), ("7d", 604_800), ("1w", 604_800)]
)
def test_since_accepts_a_duration(monkeypatch: pytest.MonkeyPatch, text: str, ago: float) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert moment(text) == 1_000_000.0 - ago


@pytest.mark.parametrize("text", ["2026-07-01", "2026-07-01T14:30", "2026-07-01 14:30:07"])
def test_since_accepts_a_date(text: str) -> None:
    expected: Any = text.replace(" ", "T")
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment(text))).startswith(expected)


@pytest.mark.parametrize("text", ["", "2x", "yesterday", "h", "-1h", "9" * 400 + "-01-01"])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="30m, 2h or 7d"):
        moment(text)


def test_an_unused_home_is_left_unchanged(relay: Relay) -> None:
    assert relay("audit").returncode == 0
    assert not (relay.home / "state").exists()
