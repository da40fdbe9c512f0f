"""The audit log of injections, and the notices to the user (R71, R72, R75, R79, R80)."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from agents.hooked import Claude
from relay.eventbus import EventBus, handles
from relay.features.injection_audit import InjectionAudit
from relay.injection import audit_log
from relay.injection.audit_log import AuditLog, Entry
from relay.injection.budget import Budget
from relay.injection.events import InjectionEnded
from relay.injection.injection import Injection, Outcome, Result
from relay.storage.journal import Journal
from relay.terminal.events import Notify
from session.fake_agent import FakeAgent, project, settings
from session.test_session_guard import LISTENING, Agent
from support import Relay, wait_until

HANDLERS = """
from relay import HookResult, on, pattern

@pattern("lint")
def lint(target, message, ctx):
    match target:
        case "big":
            return HookResult(
                "inject_context", "é" * 5121, user_message="5,121 findings", user_message_level="warning"
            )
        case "quiet":
            return HookResult("inject_context", "between us " + message, suppress_output=True)
        case "role":
            return HookResult("inject_context", message, context_injection_role="assistant")
        case "user":
            return HookResult(user_message="look at " + message, user_message_level="error")
    return message

@on("message_received")
def note(body):
    return "noted " + body
"""

SECRET = "ghp_" + "a1B2" * 9


def entries(relay: Relay, *options: str) -> list[dict[str, Any]]:
    return list(json.loads(relay("audit", "--json", *options).stdout))


def entry(relay: Relay, words: str) -> dict[str, Any]:
    """Wait for the entry whose text contains `words`."""
    found = wait_until(
        lambda: [each for each in entries(relay) if words in each.get("text", "")],
        message=lambda: str(entries(relay)),
    )
    return found[0]


class Rig:
    """An audit with its own journal and log; `notices` has what the user sees."""

    def __init__(self, folder: Path, *, full: bool = False, limit: int = 10) -> None:
        self.path = folder / "audit.jsonl"
        self.notices: list[tuple[str, str, str]] = []
        self.budget = Budget(limit)
        self.bus = bus = EventBus(asyncio.new_event_loop())
        bus.loop.close()
        journal = Journal(folder / "events.jsonl", "s1", "Alice")
        log = AuditLog(self.path, "s1", "Alice", "crew", full=full)
        bus.add(InjectionAudit(bus, journal, log, self.budget))
        bus.add(self)

    def ended(self, injection: Injection, outcome: Outcome) -> None:
        self.bus.publish(InjectionEnded(injection, outcome))

    @handles(Notify)
    def notify(self, event: Notify) -> None:
        self.notices.append((event.text, event.level, event.source))

    @property
    def entries(self) -> list[Entry]:
        return list(audit_log.read(self.path))


def hook(text: str = "line 42 is too long", **more: Any) -> Injection:
    return Injection("id1", text, "ruff", "hook", event="PostToolUse", role="system", **more)


def test_an_entry_has_the_source_text_time_and_route(tmp_path: Path) -> None:
    """R75, R74, R72"""
    rig = Rig(tmp_path)
    before = time.time()
    rig.ended(
        hook(place="/x/hooks.json:12", time=5.0), Outcome(Result.INJECTED, "", "native", "system", "printed")
    )
    (found,) = rig.entries
    assert found.time >= before
    assert found.public() | {"time": 0} == {
        "id": "id1",
        "kind": "hook",
        "source": "ruff",
        "hook_name": "ruff",
        "time": 0,
        "asked": 5.0,
        "session": "s1",
        "name": "Alice",
        "team": "crew",
        "hook_event": "PostToolUse",
        "place": "/x/hooks.json:12",
        "injection_size": 19,
        "tokens": 5,
        "injection_role": "system",
        "delivered_role": "system",
        "route": "native",
        "result": "injected",
        "verified": "printed",
        "over_budget": False,
        "text": "line 42 is too long",
    }
    (line,) = map(json.loads, rig.path.read_text().splitlines())
    assert line["event"] == "injection"
    assert rig.path.stat().st_mode & 0o777 == 0o600


def test_a_late_confirmation_counts_once_and_is_one_injection(tmp_path: Path) -> None:
    """R75, R76: the file has both entries; a reader sees the final outcome."""
    rig = Rig(tmp_path)
    injection = hook("x" * 20)
    rig.ended(injection, Outcome(Result.UNCERTAIN, "not seen", "typed", "user"))
    rig.ended(injection, Outcome(Result.INJECTED, "", "typed", "user", "hook"))
    assert rig.budget.spent == 5
    assert len(rig.path.read_text().splitlines()) == 2
    assert [(each.result, each.failed) for each in rig.entries] == [("injected", False)]


def test_undelivered_text_costs_no_budget(tmp_path: Path) -> None:
    """R76"""
    rig = Rig(tmp_path)
    for result in (Result.REJECTED, Result.WITHDRAWN, Result.UNTYPED):
        rig.ended(hook("x" * 100), Outcome(result, "why"))
    rig.ended(Injection("m", "x" * 100, "Bob"), Outcome(Result.INJECTED))
    assert rig.budget.spent == 0 and [level for _, level, _ in rig.notices] == ["error"]


def test_a_failure_notice_repeats_the_hooks_message_to_the_user(tmp_path: Path) -> None:
    """R80"""
    rig = Rig(tmp_path)
    rig.ended(hook(remark="3 findings", place="/x/hooks.json:12"), Outcome(Result.REJECTED, "too large"))
    rig.ended(hook(), Outcome(Result.REJECTED, "too large"))
    rig.ended(Injection("m", "hi", "Bob"), Outcome(Result.REJECTED, "dropped"))  # reported to its sender
    assert rig.notices == [
        ("3 findings (injection failed): too large", "error", "ruff (/x/hooks.json:12)"),
        ("its text was not delivered to the agent (injection failed): too large", "error", "ruff"),
    ]


def test_secrets_are_redacted_in_previews_and_full_texts(tmp_path: Path) -> None:
    """R44, R43: even where a preview would split one, and in texts that are too large."""
    for full in (False, True):
        folder = tmp_path / str(full)
        folder.mkdir()
        rig = Rig(folder, full=full)
        long = "word " * 49 + SECRET + " word" * 1000
        for text in (f"token {SECRET}", long, long * 40):
            rig.ended(hook(text), Outcome(Result.REJECTED, f"not with {SECRET}"))
        written = rig.path.read_text()
        assert SECRET not in written and SECRET[4:20] not in written
        texts = [json.loads(line)["text"] for line in written.splitlines()]
        assert [len(text) > 1000 for text in texts] == [False, full, False]


def test_suppressed_output_is_not_stored(tmp_path: Path) -> None:
    """R29"""
    rig = Rig(tmp_path)
    rig.ended(hook("between us", quiet=True), Outcome(Result.INJECTED, "", "native", "system"))
    assert rig.entries[0].text is None and "between us" not in rig.path.read_text()


@pytest.fixture(scope="module")
def alice(shared: Relay) -> FakeAgent:
    return FakeAgent(shared, "Alice").wrap(cwd=project(shared, HANDLERS))


def test_injections_into_an_agent_are_in_the_audit(alice: FakeAgent) -> None:
    """R75, R72: with both the requested role and the role of the typed text."""
    relay = alice.relay
    alice.say("@lint:all hello there")
    alice.receives("hello there")
    alice.say("@lint:role I should look again")
    alice.receives("I should look again")
    alice.say("@lint:quiet secretly")
    alice.receives("between us secretly")
    (message,) = json.loads(relay("send", "--json", "Alice", f"my token is {SECRET}").stdout)
    alice.receives(SECRET)  # the agent gets the text unchanged
    first = entry(relay, "hello there")
    assert (first["hook_name"], first["kind"], first["route"]) == ("@lint:all", "hook", "typed")
    assert (first["injection_role"], first["delivered_role"]) == ("system", "user")
    assert first["asked"] <= first["time"] and first["name"] == "Alice" and first["team"] == "default"
    asked = entry(relay, "I should look again")
    assert (asked["injection_role"], asked["delivered_role"]) == ("assistant", "user")
    sent = entry(relay, "my token is")
    assert (sent["message_id"], sent["sender"]) == (message["id"], "the user")
    assert SECRET not in sent["text"]
    noted = wait_until(lambda: [e for e in entries(relay) if e.get("hook_event") == "message_received"])
    assert noted[0]["hook_name"]
    (quiet,) = [e for e in entries(relay) if e["source"] == "@lint:quiet"]
    assert "text" not in quiet and quiet["injection_size"] == len("between us secretly")


def test_a_text_that_is_too_large_is_reported_and_not_delivered(alice: FakeAgent) -> None:
    """R71, R79, R80: the limit is in bytes, not characters; none of the text reaches the agent."""
    alice.say("@lint:big go")
    alice.say("@lint:all after that")
    alice.receives("after that")
    assert alice.notice("5,121 findings") == "lint (@lint): 5,121 findings"
    failed = alice.notice("(injection failed)")
    assert failed.startswith("@lint:big: 5,121 findings (injection failed): the text has 10,242 bytes")
    levels = {e["text"]: (e["level"], e["source"]) for e in alice.events("notice")}
    assert levels["lint (@lint): 5,121 findings"] == ("warning", "lint (@lint)")
    assert levels[failed] == ("error", "@lint:big")
    assert "é" not in alice.received and "findings" not in alice.received
    (found,) = entries(alice.relay, "--failed")
    assert (found["result"], found["injection_size"]) == ("rejected", 10_242)


def test_a_message_to_the_user_stays_out_of_the_agents_context(alice: FakeAgent) -> None:
    """R79"""
    alice.say("@lint:user this")
    alice.say("@lint:all and then")
    alice.receives("and then")
    assert alice.notice("look at this") == "lint (@lint): look at this"
    (notice,) = [e for e in alice.events("notice") if "look at this" in e["text"]]
    assert (notice["level"], notice["source"]) == ("error", "lint (@lint)")
    assert "look at" not in alice.received


def test_settings_can_keep_full_texts(relay: Relay) -> None:
    """R43"""
    settings(relay, 'hook_output = "full"\n')
    alice = FakeAgent(relay, "Alice").wrap(cwd=project(relay, HANDLERS))
    text = " ".join(f"word{number}" for number in range(300))
    alice.say(f"@lint:all {text}")
    alice.receives("word299")
    assert entry(relay, "word150")["text"] == text


def test_an_agent_sees_only_its_own_injections(relay: Relay, tmp_path: Path) -> None:
    """R75"""
    FakeAgent(relay, "Bob").wrap()
    relay("send", "Bob", "for Bob only")
    entry(relay, "for Bob only")
    own = Agent(relay, tmp_path, LISTENING + "relay audit --json; relay audit --to Bob")
    assert "for Bob" not in own.out and "[]" in own.out
    assert own.code == 1 and "sees only its own injections" in own.err + own.out


TWO = """
from relay import HookResult, on

@on("tool_post")
def ruff(event):
    return HookResult("inject_context", "line 42 is too long", user_message="1 finding")

@on("tool_post")
def mypy(event):
    return "line 7 returns nothing, says mypy " + "x" * int(event.tool_input.get("more", 0))
"""


def test_two_hooks_of_one_event_share_a_reply_and_each_is_in_the_audit(relay: Relay) -> None:
    """R73, R78, R75: each under a heading; the audit has both the requested and the delivered role."""
    claude = Claude(relay).wrap(cwd=project(relay, TWO))
    claude.fire("SessionStart", source="startup")
    claude.fire("UserPromptSubmit", prompt="do it")
    (reply,) = claude.fire("PostToolUse", tool_name="Bash", tool_input={}, tool_response="x")
    given = str(json.loads(reply["stdout"])["hookSpecificOutput"]["additionalContext"])
    found = re.search(
        r"\[relay (\w{4}) hooks\]\n2 hooks say this, each under its name:\n\n"
        r"\[relay \1\] From ruff[^\n]*, \d\d:\d\d:\d\d:\nline 42 is too long\n\n"
        r"\[relay \1\] From mypy[^\n]*, \d\d:\d\d:\d\d:\nline 7 returns nothing[^\n]*\n\[/relay \1\]",
        given,
    )
    assert found, given
    assert "1 finding" not in given  # R79
    assert [e["level"] for e in claude.events("notice") if "1 finding" in e["text"]] == ["info"]
    wait_until(lambda: [e for e in entries(relay) if e["kind"] == "hook"][1:])
    hooks = [e for e in entries(relay) if e["kind"] == "hook"]
    assert [e["hook_name"].split()[0] for e in hooks] == ["ruff", "mypy"]
    assert {(e["route"], e["injection_role"], e["delivered_role"], e["result"]) for e in hooks} == {
        ("native", "system", "system", "injected")
    }
    assert {e["hook_event"] for e in hooks} <= {"tool_post", "PostToolUse"}


def test_each_turn_of_an_agent_with_hooks_has_its_own_budget(relay: Relay) -> None:
    """R76, R77: beyond it the user is warned once per turn; the agent still gets everything."""
    settings(relay, "injection_budget = 100\n")
    claude = Claude(relay).wrap(cwd=project(relay, TWO))
    claude.fire("SessionStart", source="startup")

    def work(*more: int) -> list[bool]:
        claude.fire("UserPromptSubmit", prompt="do it")
        before = len(hooks())
        for length in more:
            (reply,) = claude.fire(
                "PostToolUse", tool_name="Bash", tool_input={"more": length}, tool_response="x"
            )
            assert "x" * length in reply["stdout"]
        wait_until(lambda: len(hooks()) == before + 2 * len(more))
        claude.fire("Stop", last_assistant_message="Done.")
        return [entry["over_budget"] for entry in hooks()[before:]]

    def hooks() -> list[dict[str, Any]]:
        return [entry for entry in entries(relay) if entry["kind"] == "hook"]

    def warnings() -> int:
        return len([e for e in claude.events("notice") if "hooks have injected" in e["text"]])

    assert work(0) == [False, False] and warnings() == 0
    assert work(400, 400) == [False, True, True, True] and warnings() == 1
    assert work(0) == [False, False] and warnings() == 1
    assert work(400) == [False, True] and warnings() == 2
