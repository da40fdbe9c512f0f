"""Directives in real sessions: what fires, in which order, and what is only text."""

from __future__ import annotations

import json

import pytest

from session.fake_agent import FakeAgent, messages, project
from support import Relay, wait_until

RECORD = """
from pathlib import Path
from relay import RelayConfig, on, pattern

def note(text):
    with open(Path(__file__).with_name("record"), "a") as record:
        record.write(text + "\\n")
"""


def record(relay: Relay) -> list[str]:
    path = relay.home / "project" / "record"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("colon", ["async ", ""], ids=["async", "sync"])
def test_a_namespace_of_ones_own_is_called_and_its_answer_reaches_the_agent(relay: Relay, colon: str) -> None:
    """R46, R49, R50, R57."""
    folder = project(
        relay,
        f"""
from relay import pattern

@pattern("deploy")
{colon}def deploy(target, message, ctx):
    return {{"inject": f"Deployed {{message}} to {{target}} for {{ctx.agent_name}}"}}
""",
    )
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("Let me see.\n@deploy:staging v1.2.3")
    alice.receives("[/relay")
    ((source, text),) = alice.texts()
    assert source.startswith("hook @deploy:staging") and text == "Deployed v1.2.3 to staging for Alice"


def test_handlers_of_a_table(relay: Relay) -> None:
    """R49, R58: RelayConfig with functions and "builtin"."""
    folder = project(
        relay,
        """
from relay import RelayConfig

async def deploy(target, message, ctx):
    await ctx.relay.send("Bob", f"{target} is at {message}")

def greet(event, ctx):
    return "Welcome."

config = RelayConfig(
    patterns={"deploy": deploy, "relay": "builtin", "memory": "builtin"},
    hooks={"onSessionStart": greet},
    memory={"backend": "embedded", "autoSave": False, "promptOnEnd": False},
)
""",
    )
    bob = FakeAgent(relay, "Bob").wrap()
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.receives("Welcome.")
    alice.say("@deploy:staging v1\n@relay:Bob and by relay\n@memory:save the mat hides a key")
    bob.receives("and by relay")
    alice.receives("Saved to memory as")
    wait_until(lambda: len(bob.texts()) == 2)
    assert sorted(bob.texts()) == [("Alice", "and by relay"), ("Alice", "staging is at v1")]


def test_the_built_in_namespaces(relay: Relay) -> None:
    """R47, R48: all in one agent's words."""
    alice, bob, carol = (FakeAgent(relay, name).wrap() for name in ("Alice", "Bob", "Carol"))
    alice.say("@relay:bob only for Bob\n@relay:* for all\n@broadcast:* for all again")
    for agent in (bob, carol):
        agent.receives("for all again")
    bob.receives_exactly(("Alice", "only for Bob"), ("Alice", "for all"), ("Alice", "for all again"))
    carol.receives_exactly(("Alice", "for all"), ("Alice", "for all again"))
    alice.say("@memory:save Deploys need two reviews")
    id = alice.receives("Saved to memory as").split("Saved to memory as ")[1].split(".")[0]
    alice.say("@memory:search deploying")
    alice.receives("Deploys need two reviews")
    alice.say(f"@memory:forget {id}")
    alice.receives(f"Forgot {id}")
    alice.say("@memory:list")
    alice.receives("There are no memories yet.")


def test_what_is_meant_literally_is_not_acted_on_and_reaches_handlers_unescaped(relay: Relay) -> None:
    """R65."""
    folder = project(
        relay,
        RECORD
        + """
@pattern("log")
def log(target, message):
    note(message)

@on("output")
def output(output):
    note("output: " + output)
""",
    )
    alice, bob = FakeAgent(relay, "Alice").wrap(cwd=folder), FakeAgent(relay, "Bob").wrap()
    alice.say(r"\@relay:Bob not sent")
    alice.say(r"\\@relay:Bob not sent either")
    alice.say("one may write @relay:Bob in a sentence\n```\n@relay:Bob in a fence\n```")
    alice.say(r"@log:x use \@relay:Name and \\@relay:Name")
    alice.say("@relay:Bob sent")
    bob.receives("[/relay")

    def said() -> list[str]:
        """Return what was said, one or several lines at a time."""
        return [line.removeprefix("output: ") for line in record(relay)]

    for line in (r"use @relay:Name and \@relay:Name", r"\@relay:Bob not sent either"):  # each has a queue
        wait_until(lambda line=line: line in said(), message=lambda: str(record(relay)))  # type: ignore[misc]
    bob.receives_exactly(("Alice", "sent"))
    assert "@relay:Bob not sent" in said()


def test_order_specificity_override_and_stop(relay: Relay) -> None:
    """R66, R67, R68, R69."""
    folder = project(
        relay,
        RECORD
        + """
@pattern("ship")
def any_target(target): note(f"{target}: any")

@pattern("ship:prod-*")
def glob(target): note(f"{target}: glob")

@pattern("ship:prod-eu")
def exact(target): note(f"{target}: exact")

@pattern("ship")
def registered_later(target): note(f"{target}: later"); return {"stop": True}

@pattern("ship")
def never(target): note("never")

@pattern("relay")
async def after_the_builtin(target, message, ctx):
    note(f"relay: {[m.body for m in ctx.messages]}")

@pattern("broadcast", override=True)
def instead(target, message): note(f"instead: {message}")
""",
    )
    alice, bob = FakeAgent(relay, "Alice").wrap(cwd=folder), FakeAgent(relay, "Bob").wrap()
    alice.say("@ship:prod-eu it\n@relay:Bob hello\n@broadcast:* kept back\n@ship:lab it")
    wait_until(lambda: len(record(relay)) == 8, message=lambda: f"{record(relay)}\n{alice.log()}")
    lines = record(relay)
    assert [line for line in lines if ": " in line and line.startswith(("prod", "lab"))] == [
        "prod-eu: exact", "prod-eu: glob", "prod-eu: any", "prod-eu: later", "lab: any", "lab: later",
    ]  # fmt: skip
    assert "relay: ['hello']" in lines
    assert "instead: kept back" in lines
    bob.receives("hello")
    assert [message["body"] for message in messages(relay)] == ["hello"]


def test_a_mistake_is_told_to_the_agent_that_made_it(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    FakeAgent(relay, "Bobby").wrap()
    for said, answer in (
        ("@relay:Bobyb hello", "Did you mean Bobby?"),
        ("@relay:Zoe hello", "team 'default' has no agent called 'Zoe'. There is Bobby."),
        ("@relay:Alice hello", "is the sender."),
        ("@relay:Bobby", "it needs a text after it"),
        ("@relay:#general hello", "There are no channels yet"),
        ("@memory:sav it", "Did you mean @memory:save?"),
        ("@relay:Bobby " + "x" * 70_000, "the limit is 65536"),
        ("@relay:Bobby <<<\nno end", "there was no >>> line"),
    ):
        alice.say(said)
        alice.receives(answer)


def test_the_same_twice_is_two_messages_and_a_line_in_pieces_is_one(relay: Relay) -> None:
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    alice.say("@relay:Bob Are you", end="")
    wait_until(lambda: alice.state() == "ready")
    alice.say(" there?\n@relay:Bob Are you there?\n@relay:Bob last")
    bob.receives("last")
    assert [text for _, text in bob.texts()] == ["Are you there?", "Are you there?", "last"]


def test_many_lines_are_one_message(relay: Relay) -> None:
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    alice.say("@relay:Bob <<<\nfirst\n\n  @relay:Bob second\n>>>\n@relay:Bob done")
    bob.receives("done")
    assert [m["body"] for m in messages(relay)] == ["first\n\n  @relay:Bob second", "done"]


def test_what_was_typed_into_the_agent_never_fires(relay: Relay) -> None:
    """The terminal echoes what relay types; the agent did not say it."""
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    carol = FakeAgent(relay, "Carol").wrap()
    alice.say("@relay:Bob @relay:Carol pass this on\n@relay:Bob <<<\nlook:\n@relay:Carol and this\n>>>")
    bob.receives("and this")
    bob.say("@relay:Carol from Bob himself")
    carol.receives("from Bob himself")
    carol.receives_exactly(("Bob", "from Bob himself"))
    assert json.loads(relay("messages", "--json", "--to", "Carol").stdout)[0]["body"] == "from Bob himself"


def test_a_directive_that_is_drawn_again_and_again_fires_once(relay: Relay) -> None:
    """A session with the screen reader reads it."""
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap()
    for _ in range(11):
        alice.say("\x1b[2J\x1b[H● @relay:Bob drawn\x1b[20Gby cells\r\n\x1b[5;1H> ", end="")
    alice.say(
        "\x1b[2J\x1b[H● @relay:Bob drawn\x1b[20Gby cells\r\n\r\n● @relay:Bob and done\r\n\x1b[8;1H> ", end=""
    )
    bob.receives("and done")
    assert [text for _, text in bob.texts()] == ["drawn by cells", "and done"]
