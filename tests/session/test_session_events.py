"""Events of real sessions, and what their handlers know and can do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgers import post
from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, messages, project, settings
from support import Relay, wait_until

pytestmark = pytest.mark.own_team

NOTE = """
import json, threading
from pathlib import Path
from relay import on, pattern

lock = threading.Lock()

def note(*what):
    with lock, open(Path(__file__).with_name("notes"), "a") as notes:
        notes.write(json.dumps(what, default=str) + "\\n")
"""


def notes(relay: Relay) -> list[Any]:
    path = relay.home / "project" / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_note(relay: Relay, *what: Any) -> None:
    wait_until(lambda: list(what) in notes(relay), message=lambda: f"{what} in {notes(relay)}")


@pytest.mark.parametrize("event", ["session_start", "onSessionStart"])
def test_the_initial_context_comes_before_anything_else(relay: Relay, event: str) -> None:
    """R51: even before the answer to the agent's first directive, and before waiting messages."""
    folder = project(
        relay,
        NOTE
        + f"""
@on({event!r})
def first(ctx):
    while not any("@memory:save" in line for line in ctx.output):  # until the agent has printed it
        threading.Event().wait(0.01)
    ctx.inject("You are on call.")
    return "Be brief."

@on({event!r})
async def second(event, ctx):
    return {{"inject": "The task is " + ctx.task}}
""",
    )
    with Ledger(Home.from_env(relay.environment).ensure().ledger) as ledger:
        ledger.registry.register(f"{relay.team}", "Alice")
        post(ledger, f"{relay.team}", "you", "Alice", "mail")
    alice = FakeAgent(relay, "Alice").wrap(
        "--ready", "@memory:save the mat hides a key\n", cwd=folder, options=("--task", "tidy up")
    )
    alice.receives("Saved to memory")
    alice.receives("from the user] mail")
    assert [text for _, text in alice.texts()][:3] == ["You are on call.", "Be brief.", "The task is tidy up"]
    assert [source.partition(",")[0] for source, _ in alice.texts()][:3] == [
        "hook first (on session_start)",
        "hook first (on session_start)",
        "hook second (on session_start)",
    ]


def test_handlers_get_output_as_lines_without_escape_sequences(relay: Relay) -> None:
    """R53."""
    folder = project(relay, NOTE + "@on('output')\ndef record(output): note('said', output)\n")
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("\x1b[1mbold\x1b[0m and \x1b]0;title\x07plain\nsecond 日本語")
    wait_until(lambda: "second" in str(notes(relay)) or "\\u" in str(notes(relay)))
    assert "\n".join(text for _, text in notes(relay)) == "bold and plain\nsecond 日本語"


def test_a_slow_output_handler_gets_more_output_at_once(relay: Relay) -> None:
    """R53: pending output is combined into one call."""
    folder = project(
        relay,
        NOTE
        + """
import time

@on("output")
def record(output):
    note(output)
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
""",
    )
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("first")
    wait_for_note(relay, "first")
    for number in range(10):
        alice.say(f"@memory:list {number}")
        wait_until(lambda number=number: len(alice.events("directive")) > number)
    (folder / "go").touch()
    wait_until(lambda: "@memory:list 9" in str(notes(relay)))
    alice.say("last")
    wait_until(lambda: "last" in str(notes(relay)))
    assert len(notes(relay)) <= 5


def test_message_events_have_the_sender_and_the_body(relay: Relay) -> None:
    """R55: and message_sent reports it at the sender."""
    folder = project(
        relay,
        NOTE
        + """
@on("message_received")
def received(sender, body, ctx): note("received", ctx.agent_name, sender, body)

@on("onMessageReceived")
async def as_event(event, ctx): note("event", event.sender, event.body)

@on("message_sent")
def sent(to, body, ctx): note("sent", ctx.agent_name, to, body)
""",
    )
    alice, bob = FakeAgent(relay, "Alice").wrap(cwd=folder), FakeAgent(relay, "Bob").wrap(cwd=folder)
    alice.say("@relay:bob the build is red")
    wait_for_note(relay, "sent", "Alice", "Bob", "the build is red")
    wait_for_note(relay, "received", "Bob", "Alice", "the build is red")
    wait_for_note(relay, "event", "Alice", "the build is red")
    bob.receives("the build is red")
    relay("send", "Alice", "from a user")
    wait_for_note(relay, "received", "Alice", "you", "from a user")


def test_idle_fires_once_per_idle_period(relay: Relay) -> None:
    """R56: after `idle_seconds` of the settings."""
    settings(relay, "idle_seconds = 0.2\n")
    folder = project(relay, NOTE + "@on('idle')\ndef idle(seconds): note('idle', seconds >= 0.2)\n")
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    wait_until(lambda: len(notes(relay)) == 1)
    (folder / "relay.config.py").write_text("changed")
    alice.notice("has changed")  # found at the next check, so there was one
    assert len(notes(relay)) == 1
    alice.say("still here")
    wait_until(lambda: len(notes(relay)) >= 2)
    assert notes(relay) == [["idle", True], ["idle", True]]


def test_idle_seconds_is_thirty_by_default() -> None:
    """R56."""
    from relay.settings import Settings

    assert Settings().idle_seconds == 30


def test_the_context_of_a_handler_is_complete(relay: Relay) -> None:
    """R60."""
    folder = project(
        relay,
        NOTE
        + """
@pattern("tell")
def tell(target, message, ctx):
    note(
        ctx.agent_id, ctx.agent_name, ctx.session_id == ctx.env["RELAY_SESSION"], ctx.working_dir,
        ctx.env["COLOUR"], ctx.task, ctx.output[-2:], [[m.sender, m.to, m.body] for m in ctx.messages],
    )
""",
    )
    alice = FakeAgent(relay, "Alice").wrap(
        cwd=folder, env={"COLOUR": "green"}, options=("--task", "tidy up", "-t", "red")
    )
    relay("send", "-t", "red", "Alice", "hello")
    alice.receives("hello")
    alice.say("one\ntwo")
    alice.say("@tell:me now")
    wait_until(lambda: notes(relay))
    assert notes(relay) == [
        [
            "red/Alice",
            "Alice",
            True,
            str(folder),
            "green",
            "tidy up",
            ["two", "@tell:me now"],
            [["you", "Alice", "hello"]],
        ]
    ]


def test_a_handler_can_inject_send_and_notify(relay: Relay) -> None:
    """R61: also later, and from another thread."""
    folder = project(
        relay,
        NOTE
        + """
@pattern("do")
async def do(target, message, ctx):
    ctx.inject("injected")
    ctx.send("Bob", "sent")
    ctx.send("Bbo", "misspelt")
    ctx.notify("builds", "to a channel")
    threading.Timer(0.05, ctx.inject, ["injected later"]).start()
""",
    )
    alice, bob = FakeAgent(relay, "Alice").wrap(cwd=folder), FakeAgent(relay, "Bob").wrap()
    alice.say("@do:it now")
    bob.receives("[/relay")
    alice.receives("injected later")
    bob.receives_exactly(("Alice", "sent"))
    assert [text for _, text in alice.texts()] == ["injected", "injected later"]
    assert "Did you mean Bob?" in alice.notice("could not send a message to 'Bbo'")
    alice.notice("could not send a message to '#builds'")


def test_a_handler_can_use_memory_and_messages(relay: Relay) -> None:
    """R62."""
    folder = project(
        relay,
        NOTE
        + """
@pattern("serve")
async def serve(target, message, ctx):
    saved = ctx.memory.save("Deploys need two reviews", shared=True)
    found = [memory.text for memory in ctx.memory.search("deploying")]
    listed = [memory.id == saved.id for memory in ctx.memory.list()]
    note("memory", found, listed, ctx.memory.forget(saved.id), ctx.memory.list())
    sent = await ctx.relay.send("Bob", "hello")
    everyone = await ctx.relay.broadcast("to all")
    note("relay", [m.to for m in sent], [m.to for m in everyone])
    note("roster", [[m.name, m.online] for m in await ctx.relay.roster()])
""",
    )
    FakeAgent(relay, "Carol").wrap()
    relay("stop", "Carol")
    bob, alice = FakeAgent(relay, "Bob").wrap(), FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@serve:x y")
    wait_for_note(relay, "memory", ["Deploys need two reviews"], [True], True, [])
    wait_for_note(relay, "relay", ["Bob"], ["Bob"])
    wait_for_note(relay, "roster", [["Bob", True], ["Carol", False]])
    bob.receives("to all")
    assert messages(relay, "--to", "Carol") == []


def test_a_handlers_message_to_the_user_is_not_given_to_the_agent(relay: Relay) -> None:
    folder = project(
        relay,
        """
from relay import HookResult, pattern

@pattern("warn")
def warn(target, message, ctx):
    return HookResult("inject_context", "for the agent", user_message="for the user", stop=True)
""",
    )
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@warn:x y")
    alice.receives("for the agent")
    assert alice.notice("for the user") == "warn (@warn): for the user"
    assert "for the user" not in alice.received
