"""Directives in real sessions: which ones run, in which order, and what is only text."""

from __future__ import annotations

import pytest

from session.fake_agent import FakeAgent, SharedAgent, messages, project
from session.test_session_replaced import bodies, wait_for_body
from support import Relay, wait_until

pytestmark = pytest.mark.own_team

NOTES = """
from pathlib import Path
from relay import RelayConfig, on, pattern

def note(text):
    with open(Path(__file__).with_name("record"), "a") as record:
        record.write(text + "\\n")
"""


def notes(relay: Relay) -> list[str]:
    path = relay.home / "project" / "record"
    return path.read_text().splitlines() if path.exists() else []


def test_a_custom_namespace_is_called_and_its_answer_reaches_the_agent(relay: Relay) -> None:
    """R46, R49, R50, R57: whether or not its function is asynchronous."""
    folder = project(
        relay,
        """
from relay import pattern

def deploy(target, message, ctx):
    return {"inject": f"Deployed {message} to {target} for {ctx.agent_name}"}

@pattern("sync")
def deploy_now(target, message, ctx):
    return deploy(target, message, ctx)

@pattern("async")
async def deploy_soon(target, message, ctx):
    return deploy(target, message, ctx)
""",
    )
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    for number, namespace in enumerate(("sync", "async")):
        alice.say(f"Let me see.\n@{namespace}:staging v{number}")
        alice.receives(f"Deployed v{number}")
        wait_until(lambda count=number + 1: len(alice.texts()) == count)  # type: ignore[misc]
        source, text = alice.texts()[-1]
        assert source.startswith(f"hook @{namespace}:staging")
        assert text == f"Deployed v{number} to staging for Alice"


def test_the_agent_learns_of_a_misspelt_namespace_once_in_a_turn(relay: Relay) -> None:
    """C18: of other words, such as a decorator, it learns nothing."""
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("@relya:Bob one\n@param:x y\n@relya:Bob two\n@memory:save the turn")
    alice.receives("Saved to memory")
    relay("send", "--wait", "60", "Alice", "the next turn")
    alice.say("@relya:Bob three\n@memory:save another")
    wait_until(lambda: alice.received.count("Saved to memory") == 2)
    wrong = "Nothing handles @relya:, so it was ignored. Did you mean @relay:?"
    wait_until(lambda: [text for _, text in alice.texts()].count(wrong) == 2, message=lambda: alice.received)
    assert "@param" not in alice.received
    assert "3 directives with a misspelt namespace, ignored" in relay("explain", "Alice").stdout


def test_handlers_can_be_given_as_a_table(relay: Relay) -> None:
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


def test_the_built_in_namespaces_work(relay: Relay) -> None:
    """R47, R48."""
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


def test_an_escaped_directive_is_only_text_and_handlers_get_it_unescaped(relay: Relay) -> None:
    """R65."""
    folder = project(
        relay,
        NOTES
        + """
@pattern("log")
def log(target, message):
    note(message)

@on("output")
def output(output):
    note("output: " + output)
""",
    )
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say(r"\@relay:you not sent")
    alice.say(r"\\@relay:you not sent either")
    alice.say("one may write @relay:you in a sentence\n```\n@relay:you in a fence\n```")
    alice.say(r"@log:x use \@relay:Name and \\@relay:Name")
    alice.say("@relay:you sent")
    wait_for_body(relay, "sent")

    def said() -> list[str]:
        """Return the agent's output, one or several lines at a time."""
        return [line.removeprefix("output: ") for line in notes(relay)]

    for line in (r"use @relay:Name and \@relay:Name", r"\@relay:you not sent either"):  # each has a queue
        wait_until(lambda line=line: line in said(), message=lambda: str(notes(relay)))  # type: ignore[misc]
    assert bodies(relay) == ["sent"]
    assert "@relay:you not sent" in said()


def test_handlers_run_by_specificity_until_one_stops(relay: Relay) -> None:
    """R66, R67, R68, R69."""
    folder = project(
        relay,
        NOTES
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
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@ship:prod-eu it\n@relay:you hello\n@broadcast:* kept back\n@ship:lab it")
    wait_until(lambda: len(notes(relay)) == 8, message=lambda: f"{notes(relay)}\n{alice.log()}")
    lines = notes(relay)
    assert [line for line in lines if ": " in line and line.startswith(("prod", "lab"))] == [
        "prod-eu: exact", "prod-eu: glob", "prod-eu: any", "prod-eu: later", "lab: any", "lab: later",
    ]  # fmt: skip
    assert "relay: ['hello']" in lines
    assert "instead: kept back" in lines
    wait_for_body(relay, "hello")
    assert [message["body"] for message in messages(relay)] == ["hello"]


def test_a_wrong_directive_is_answered_with_a_hint(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    FakeAgent(relay, "Bobby").wrap()
    for said, answer in (
        ("@relay:Bobyb hello", "Did you mean Bobby?"),
        ("@relay:Zoe hello", f"team '{relay.team}' has no agent called 'Zoe'. There is Bobby."),
        ("@relay:Alice hello", "is the sender."),
        ("@relay:Bobby", "it needs a text after it"),
        ("@relay:#general hello", "There are no channels yet"),
        ("@memory:sav it", "Did you mean @memory:save?"),
        ("@relay:Bobby " + "x" * 70_000, "the limit is 65536"),
        ("@relay:Bobby <<<\nno end", "there was no >>> line"),
    ):
        alice.say(said)
        alice.receives(answer)


def test_a_repeated_directive_is_two_messages_and_a_line_in_pieces_is_one(
    alice: SharedAgent, bob: SharedAgent
) -> None:
    alice.say("@relay:Bob Are you", end="")
    wait_until(lambda: alice.state() == "ready")
    alice.say(" there?\n@relay:Bob Are you there?\n@relay:Bob last")
    bob.receives("last")
    assert [text for _, text in bob.texts()] == ["Are you there?", "Are you there?", "last"]


def test_a_multi_line_directive_is_one_message(alice: SharedAgent, bob: SharedAgent) -> None:
    alice.say("@relay:Bob <<<\nfirst\n\n  @relay:Bob second\n>>>\n@relay:Bob done")
    bob.receives("done")
    assert [m["body"] for m in bob.messages()] == ["first\n\n  @relay:Bob second", "done"]


def test_text_typed_into_the_agent_is_never_a_directive(
    alice: SharedAgent, bob: SharedAgent, carol: SharedAgent
) -> None:
    """The terminal echoes what relay types."""
    alice.say("@relay:Bob @relay:Carol pass this on\n@relay:Bob <<<\nlook:\n@relay:Carol and this\n>>>")
    bob.receives("and this")
    bob.say("@relay:Carol from Bob himself")
    carol.receives("from Bob himself")
    carol.receives_exactly(("Bob", "from Bob himself"))
    assert [m["body"] for m in bob.messages() if m["to"] == "Carol"] == ["from Bob himself"]


def test_a_directive_that_is_redrawn_runs_once(alice: SharedAgent, bob: SharedAgent) -> None:
    """The session reads it with the screen reader."""
    for _ in range(11):
        alice.say("\x1b[2J\x1b[H● @relay:Bob drawn\x1b[20Gby cells\r\n\x1b[5;1H> ", end="")
    alice.say(
        "\x1b[2J\x1b[H● @relay:Bob drawn\x1b[20Gby cells\r\n\r\n● @relay:Bob and done\r\n\x1b[8;1H> ", end=""
    )
    bob.receives("and done")
    assert [text for _, text in bob.texts()] == ["drawn by cells", "and done"]
