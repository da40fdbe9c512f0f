"""`relay top` and real agents: what its keys do, as the commands of those names do it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from screens import rows
from textual.pilot import Pilot

from relay.cli.main import dispatch
from relay.control.board import look
from relay.control.commands import Commands
from relay.home import Home
from relay.top.app import Top
from relay.top.choice_list import ChoiceList
from relay.top.dialogs import Dialog, QuestionDialog
from session.fake_agent import FakeAgent, events, ps
from support import Relay, eventually, wait_until

Drive = Callable[[Top, Pilot[int]], Awaitable[None]]
MENU = Path(__file__).parent.parent / "fakes" / "agent_menu.py"


@pytest.fixture
def relay(shared: Relay, monkeypatch: pytest.MonkeyPatch) -> Relay:
    """Return the module's home, which is also that of this process: each test has a team of its own."""
    for name in os.environ.keys() - shared.environment.keys():
        if name.startswith("RELAY_"):
            monkeypatch.delenv(name)
    for name, value in shared.environment.items():
        monkeypatch.setenv(name, value)
    return shared


def drive(drive: Drive, team: str) -> None:
    """Run the app on the agents of `team`, once they are listed."""

    async def main() -> None:
        home = Home.from_env()
        top = Top(lambda: look(home, team), lambda *_: None, commands.run)
        async with top.run_test(size=(100, 30)) as pilot:
            await eventually(lambda: top.query_one("#list", ChoiceList).chosen)
            await drive(top, pilot)

    with closing(Commands(dispatch, quiet=True)) as commands:
        asyncio.run(main())


def shows(top: Top, text: str) -> bool:
    return text in "\n".join(rows(top))


async def says(top: Top, text: str) -> None:
    """Wait until `text` is on the screen."""
    try:
        await eventually(lambda: shows(top, text))
    except TimeoutError:
        raise AssertionError("\n".join(rows(top))) from None


async def twice(top: Top, text: str) -> None:
    """Wait until `text` is on the screen as an agent's last line, and on its screen."""
    await eventually(lambda: sum(text in row for row in rows(top)) == 2)


def entry(agent: FakeAgent) -> dict[str, Any]:
    """Return the agent's entry in `relay ps`."""
    return next(row for row in ps(agent.relay) if row["team"] == agent.team)


def asking(relay: Relay, team: str) -> FakeAgent:
    agent = FakeAgent(relay, "Ben", team=team).wrap()
    agent.say("Install it? [Y/n] ", end="")
    wait_until(lambda: agent.state() == "prompting", message=agent.log)
    return agent


def test_a_choices_number_answers_the_question(relay: Relay) -> None:
    ben = asking(relay, "one")

    async def answer(top: Top, pilot: Pilot[int]) -> None:
        await says(top, "1 agent, 1 needs you")
        await pilot.press("a")
        await eventually(lambda: isinstance(top.screen, QuestionDialog))
        await pilot.pause()
        assert shows(top, "Install it? [Y/n]") and shows(top, " 1  yes") and shows(top, " 2  no")
        assert ben.received == ""
        await pilot.press("2")
        await says(top, "Typed 'n' and Enter for 2: no.")
        await says(top, "1 agent, none needs you")

    drive(answer, "one")
    assert ben.receives("n\n") == "n\n"
    (entry,) = events(relay, "Ben", '"answer"')[-1:]
    assert (entry["event"], entry["option"]["text"], entry["result"]) == ("answer", "no", "answered")


def test_a_question_that_has_changed_is_not_answered(relay: Relay) -> None:
    ben = asking(relay, "two")

    async def answer(top: Top, pilot: Pilot[int]) -> None:
        await pilot.press("a")
        await eventually(lambda: isinstance(top.screen, QuestionDialog))
        ben.say("\nDelete it? [Y/n] ", end="")
        await eventually(lambda: "Delete it?" in entry(ben)["question"])
        await pilot.press("1")
        await says(top, "Ben is now asking something else. Nothing was typed.")

    drive(answer, "two")
    assert ben.received == ""


def test_a_menu_is_shown_as_drawn_and_takes_a_text(relay: Relay) -> None:
    """Escape sequences in it are harmless."""
    log = relay.home / "menu.log"
    command = (sys.executable, str(MENU))
    relay(
        "wrap",
        "-d",
        "-n",
        "Ann",
        "-t",
        "three",
        "--agent",
        "claude",
        "--",
        *command,
        env={"AGENT_LOG": str(log)},
    )

    async def answer(top: Top, pilot: Pilot[int]) -> None:
        await says(top, "1 agent, 1 needs you")
        await pilot.press("a")
        await eventually(lambda: isinstance(top.screen, QuestionDialog))
        await pilot.pause()
        assert shows(top, "touch made.txt") and shows(top, " 3  No") and shows(top, " 4  Type something.")
        await pilot.press("t")
        await eventually(
            lambda: isinstance(top.screen, Dialog) and not isinstance(top.screen, QuestionDialog)
        )
        await pilot.press(*"no", "comma", *"why", "enter")
        await says(top, "Typed 'no,why' and Enter for 4: Type something.")

    drive(answer, "three")
    assert '"no,why"' in log.read_text()


def test_a_message_is_written_and_an_agent_is_restarted_held_and_stopped(relay: Relay) -> None:
    ben = FakeAgent(relay, "Ben", team="four").wrap()
    wait_until(lambda: ben.state() == "ready", message=ben.log)

    async def use(top: Top, pilot: Pilot[int]) -> None:
        await pilot.press("m")
        await pilot.press(*"hi", "space", *"Ben", "enter")
        await says(top, "was delivered to Ben.")
        await pilot.press("r", "y")
        await says(top, "Ben is running again (pid ")
        await pilot.press("p")
        await says(top, "held (was put on hold by you)")
        await pilot.press("p")
        await says(top, "Ben continues.")
        await pilot.press("x", "y")
        await says(top, "Ben has ended.")
        await says(top, "done (1)")
        await pilot.press("r")
        assert shows(top, "relay resume Ben -t four")

    drive(use, "four")
    assert ben.texts() == [("the user", "hi Ben")]


def test_the_chosen_agents_screen_is_live(relay: Relay) -> None:
    ben = FakeAgent(relay, "Ben", team="five").wrap()

    async def see(top: Top, pilot: Pilot[int]) -> None:
        ben.say("\x1b[31mred\x1b]52;c;ZXZpbA==\x07 \x1b]0;evil\x07words")
        await twice(top, "red words")
        os.kill(int(entry(ben)["session_pid"]), 9)
        ben.say("a new session")
        await twice(top, "a new session")

    drive(see, "five")


def test_an_item_of_the_inbox_is_read_and_done(relay: Relay) -> None:
    ben = FakeAgent(relay, "Ben", team="six").wrap()
    ben.say("@relay:you The tests pass.")
    asked = asking(relay, "six2")

    async def read(top: Top, pilot: Pilot[int]) -> None:
        await says(top, "1 agent, none needs you, 1 unread")
        await pilot.press("i")
        await pilot.pause()
        assert shows(top, "Ben says to you: The tests pass.")
        await pilot.press("enter")
        await says(top, "Nothing waits for you.")

    async def done(top: Top, pilot: Pilot[int]) -> None:
        await says(top, "1 unread")
        await pilot.press("i", "d")
        await says(top, "Nothing waits for you.")

    drive(read, "six")
    drive(done, "six2")
    assert asked.received == ""
