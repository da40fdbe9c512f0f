"""What sessions put into the user's inbox, and how it reaches the user's sinks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from messaging.web_server import Server, serving
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, project, ps, settings
from support import Relay, wait_until

SECRET = "a secret of the webhook"

CONFIG = """
from relay import HookResult, pattern

@pattern("tell")
def tell(target, message, ctx):
    return HookResult(user_message=message, user_message_level="warning")
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def relay(relay: Relay, server: Server) -> Relay:
    """Return the command in a home whose inbox has a webhook."""
    settings(relay, f'[inbox]\nwebhook_url = "{server.url}"\nwebhook_secret = "{SECRET}"\n')
    return relay


def inbox(relay: Relay, kind: str = "") -> list[dict[str, Any]]:
    found = json.loads(relay("inbox", "--json").stdout)
    return [item for item in found if kind in {"", item["kind"]}]


def pushed(server: Server) -> Counter[tuple[str, str]]:
    """Return how often the webhook got each item."""
    bodies = [json.loads(body) for _, _, body in server.got]
    return Counter((body["kind"], body["text"]) for body in bodies)


def test_each_item_is_pushed_once_by_one_of_all_sessions(relay: Relay, server: Server) -> None:
    bob, _ = (FakeAgent(relay, name).wrap() for name in ("Bob", "Ann"))
    bob.say("@relay:you Shall I deploy?\n")
    wait_until(lambda: pushed(server))
    bob.say("Overwrite it? [y/N] ", end="")
    wait_until(lambda: len(pushed(server)) == 2)
    bob.exit()
    wait_until(lambda: [row["name"] for row in ps(relay)] == ["Ann"])
    relay("stop", "--all")
    assert pushed(server) == {("message", "Shall I deploy?"): 1, ("question", "Overwrite it? [y/N]"): 1}


def test_the_end_of_an_agent_is_pushed_before_its_session_ends(relay: Relay, server: Server) -> None:
    FakeAgent(relay, "Bob").wrap().exit(3)
    wait_until(lambda: not ps(relay))
    assert pushed(server) == {("failed", "exited with 3"): 1}
    (failed,) = inbox(relay)
    assert (failed["kind"], failed["next"]) == ("failed", "relay logs Bob")
    relay("forget", "Bob")
    assert inbox(relay) == []


def test_a_question_stays_the_same_item_when_the_session_is_replaced(relay: Relay, server: Server) -> None:
    bob = FakeAgent(relay, "Bob").wrap()
    bob.say("Overwrite it? [y/N] ", end="")
    (asked,) = wait_until(lambda: inbox(relay, "question"))
    wait_until(lambda: pushed(server))
    before = ps(relay)[0]["session_pid"]
    relay("reload", "Bob")
    wait_until(lambda: ps(relay)[0]["session_pid"] != before)
    wait_until(lambda: [each["id"] for each in inbox(relay, "question")] == [asked["id"]])
    bob.say("\nnever mind")
    wait_until(lambda: not inbox(relay, "question"))
    assert sum(pushed(server).values()) == 1


def test_a_question_is_listed_but_not_pushed_if_the_user_wants_that(relay: Relay) -> None:
    settings(relay, 'on_prompt = "none"\n')
    FakeAgent(relay, "Bob").wrap().say("Overwrite it? [y/N] ", end="")
    wait_until(lambda: inbox(relay, "question"))
    with closing(Ledger(relay.home / "state" / "ledger.db")) as ledger:
        assert ledger.rows("SELECT quiet FROM inbox WHERE kind = 'question'") == [(1,)]


def test_what_dies_with_an_agent_leaves_the_inbox(relay: Relay) -> None:
    """Nobody is left to say that the question is over."""
    bob = FakeAgent(relay, "Bob").wrap()
    bob.say("Overwrite it? [y/N] ", end="")
    wait_until(lambda: inbox(relay, "question"))
    relay("stop", "--now", "Bob")
    wait_until(lambda: not inbox(relay, "question"))


def test_a_notice_of_an_agent_without_a_terminal_waits_in_the_inbox(relay: Relay, server: Server) -> None:
    """B6."""
    alice = FakeAgent(relay, "Alice").wrap(cwd=project(relay, CONFIG))
    alice.say("@tell:you the disk is nearly full")
    (notice,) = wait_until(lambda: inbox(relay, "notice"))
    assert notice["name"] == "Alice" and notice["text"].endswith("the disk is nearly full")
    wait_until(lambda: pushed(server))


def test_a_failing_sink_is_listed_until_it_works(relay: Relay, server: Server, tmp_path: Path) -> None:
    server.status = 500
    bob = FakeAgent(relay, "Bob").wrap()
    bob.say("@relay:you one\n")
    wait_until(lambda: any("webhook of your inbox fails" in each["text"] for each in inbox(relay, "notice")))
    server.status = 200
    bob.say("@relay:you two\n")
    wait_until(lambda: not inbox(relay, "notice"))
    assert pushed(server)["message", "two"] == 1
