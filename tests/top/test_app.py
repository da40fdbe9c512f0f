"""What `relay top` shows, and what its keys and the mouse do in the list."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from screens import rows
from textual.pilot import Pilot
from textual.widgets import Input, Static

from boards import NOW, agent, board, waits
from relay.control.board import Board
from relay.control.commands import CommandEnd
from relay.errors import LedgerError
from relay.top.app import Top
from relay.top.choice_list import ChoiceList
from relay.top.dialogs import Confirmation, Dialog, InboxDialog, QuestionDialog
from support import eventually

SNAPSHOTS = Path(__file__).with_name("snapshots")

Drive = Callable[[Top, Pilot[int]], Awaitable[None]]


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


async def nothing(*words: str, input: str) -> CommandEnd:
    raise AssertionError(f"it must not run: {words}")


def drive(found: Callable[[], Board], drive: Drive, size: tuple[int, int] = (80, 24)) -> None:
    """Run the app on what `found` returns, once it is drawn. It may run no command."""

    async def main() -> None:
        top = Top(found, lambda *_: None, nothing)
        async with top.run_test(size=size) as pilot:
            await eventually(lambda: "looking" not in rows(top)[0])
            await pilot.pause()
            await drive(top, pilot)

    asyncio.run(main())


def chosen(top: Top) -> str:
    row = top.query_one("#list", ChoiceList).chosen
    return "" if row is None else row.entry.agent.name if row.entry else str(row.id)


FIVE = board(
    agent("Lead", "working", 62, last_line="Ann, Ben: I have split ISSUE.md between you.", tokens=81_300),
    agent("Ann", "working", 3700, last_line="Reading api/orders.py", tokens=12_345),
    agent("Ben", "prompting", 95, prompt="permission", question="Do you want to run npm install?"),
    agent("Cleo", "ready", 400, last_line="All 12 tests pass.", tokens=999_999, cost=1.5),
    agent("Dan", "failed", 7000, reason="exited with 1", pid=None, agent_pid=None, terminal_pid=None),
    inbox=(waits("question", "Ben", "Do you want to run npm install?"), waits("message", "Cleo", "Done.")),
)
_STATES = ("working", "ready", "prompting", "done", "backoff", "working")
SIXTY = board(
    *(
        agent(f"Agent{at}", _STATES[at % 6], 60 * at + 60, team=("api", "web", "ops")[at % 3],
              last_line=f"Reading file {at}.", question="Go on?" if at % 6 == 2 else "", tokens=1000 * at)
        for at in range(60)
    )
)  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("found", [FIVE, SIXTY], ids=["5", "60"])
def test_the_screen_is_as_drawn_before(found: Board, size: tuple[int, int]) -> None:
    """UPDATE=1 writes the snapshots; look at them before you commit."""

    async def compare(top: Top, _: Pilot[int]) -> None:
        path = SNAPSHOTS / f"{len(found.entries)}-{size[0]}x{size[1]}.txt"
        if "UPDATE" in os.environ:
            path.write_text("\n".join(rows(top)) + "\n")
        assert rows(top) == path.read_text().splitlines()

    drive(lambda: found, compare, size)


def test_the_chosen_agent_stays_chosen_wherever_its_row_goes() -> None:
    seen = [FIVE]

    async def move(top: Top, pilot: Pilot[int]) -> None:
        assert chosen(top) == "Ben"
        await pilot.press("down", "j")
        assert chosen(top) == "Lead"
        asks = agent("Lead", "prompting", 5, question="Which?")
        seen.append(board(asks, *(each.agent for each in FIVE.entries if each.agent.name != "Lead")))
        await eventually(lambda: rows(top)[0] == "4 agents, 2 need you")
        assert chosen(top) == "Lead"
        assert rows(top)[3].startswith("  Ben") and rows(top)[4].startswith("  Lead")
        await pilot.press("home")
        assert chosen(top) == "Ben"
        await pilot.press("end")
        assert chosen(top) == "Dan"
        seen.append(board(agent("Ann", "working"), agent("Zoe")))
        await eventually(lambda: chosen(top) == "Zoe")

    drive(lambda: seen[-1], move)


def test_words_filter_the_list_until_escape() -> None:
    async def filter(top: Top, pilot: Pilot[int]) -> None:
        await pilot.press("slash", *"tests")
        assert "  Cleo  ready" in "\n".join(rows(top)) and "Ann" not in "\n".join(rows(top)[2:4])
        await pilot.press("enter")
        assert chosen(top) == "Cleo" and top.query_one("#words", Input).display
        await pilot.press("escape")
        assert chosen(top) == "Cleo" and not top.query_one("#words", Input).display
        assert sum(row.startswith("  ") for row in rows(top)[2:12]) == 5

    drive(lambda: FIVE, filter)


def test_a_team_is_folded_and_unfolded() -> None:
    async def fold(top: Top, pilot: Pilot[int]) -> None:
        await pilot.press("slash", *"working", "space", *"ops", "enter")
        assert chosen(top) == "Agent59"
        await pilot.press("escape", "f")
        assert chosen(top) == "Fold(group=<Group.WORKING: 'working'>, team='ops')"
        shown = "\n".join(rows(top))
        assert "▸ team ops: 10 agents" in shown and "Agent59" not in shown
        await pilot.press("f")
        assert "▸" not in "\n".join(rows(top))

    drive(lambda: SIXTY, fold, (200, 60))


def test_the_mouse_chooses() -> None:
    async def click(top: Top, pilot: Pilot[int]) -> None:
        await pilot.click("#list", offset=(5, 3))
        assert chosen(top) == "Ann"
        await pilot.click("#list", offset=(5, 2))  # a heading
        assert chosen(top) == "Ann"

    drive(lambda: FIVE, click)


def test_an_error_is_shown_and_the_next_look_is_not_prevented() -> None:
    damaged = threading.Event()

    def fails() -> Board:
        if damaged.is_set():
            raise LedgerError("the ledger is damaged. `relay doctor` says more.")
        return FIVE

    async def see(top: Top, pilot: Pilot[int]) -> None:
        damaged.set()
        await eventually(lambda: "the ledger is damaged. `relay doctor` says more." in rows(top))
        damaged.clear()
        await pilot.press("escape")
        await eventually(lambda: not top.query_one("#notice", Static).display)
        assert rows(top)[0].startswith("4 agents")

    drive(fails, see)


def test_nothing_is_stopped_or_restarted_unless_you_say_yes() -> None:
    async def decline(top: Top, pilot: Pilot[int]) -> None:
        for key in "xr":
            for no in ("n", "escape"):
                await pilot.press(key)
                assert isinstance(top.screen, Confirmation)
                await pilot.press("enter", no)
                assert not isinstance(top.screen, Dialog)

    drive(lambda: FIVE, decline)


ASKED = {
    "id": "1f", "kind": "other", "selected": 2, "lines": ["Go \x1b[31mon?"],
    "options": [{"number": 1, "text": "yes"}, {"number": 2, "text": "no\x07"}], "text": False,
}  # fmt: skip


ANSWERS = {("1",): "1", ("enter",): "2", ("up", "enter"): "1", ("3", "x", "t", "escape"): None}
"""What keys answer."""


def test_a_question_is_answered_by_number_or_by_choosing() -> None:
    async def press(top: Top, pilot: Pilot[int]) -> None:
        for keys, answer in ANSWERS.items():
            answers: list[tuple[str, str] | None] = []
            top.push_screen(QuestionDialog("Ben", ASKED), answers.append)
            await pilot.pause()
            shown = "\n".join(rows(top))
            assert "Ben asks (other):" in shown and "Go ␛[31mon?" in shown and "  2  no␇" in shown
            await pilot.press(*keys)
            assert answers == [answer and ("choice", answer)], keys

    drive(lambda: FIVE, press)


def test_a_long_question_leaves_room_for_its_choices() -> None:
    async def read(top: Top, pilot: Pilot[int]) -> None:
        options = [{"number": at, "text": f"choice {at}"} for at in range(1, 6)]
        asked = ASKED | {"lines": [f"row {at}" for at in range(20)], "options": options}
        top.push_screen(QuestionDialog("Ben", asked))
        await pilot.pause()
        shown = "\n".join(rows(top))
        assert "row 0" in shown and "choice 5" in shown and "Esc: not now" in shown
        await pilot.press("tab", "end")
        await eventually(lambda: "row 19" in "\n".join(rows(top)))

    drive(lambda: FIVE, read)


def test_a_double_click_in_a_dialog_is_the_dialogs() -> None:
    """Attaching to the agent below it would fail here, as there is no terminal."""

    async def click(top: Top, pilot: Pilot[int]) -> None:
        answers: list[tuple[str, str] | None] = []
        top.push_screen(QuestionDialog("Ben", ASKED), answers.append)
        await pilot.pause()
        await pilot.click(ChoiceList, offset=(3, 0))
        assert not answers
        await pilot.click(ChoiceList, offset=(3, 0), times=2)
        await pilot.pause()
        assert answers == [("choice", "1")]
        await pilot.press("i")
        await pilot.click(ChoiceList, offset=(3, 0), times=2)
        await pilot.pause()
        assert isinstance(top.screen, InboxDialog)

    drive(lambda: FIVE, click)


def test_the_help_and_the_inbox_are_shown_and_left() -> None:
    async def look(top: Top, pilot: Pilot[int]) -> None:
        await pilot.press("question_mark")
        assert "relay inbox --follow" in "\n".join(rows(top))
        await pilot.press("escape", "i")
        assert isinstance(top.screen, InboxDialog)
        shown = "\n".join(rows(top))
        assert "Ben has a question: Do you want to run npm install?" in shown and "relay answer Ben" in shown
        await pilot.press("down")
        assert "relay inbox show message-" in "\n".join(rows(top))
        await pilot.press("escape", "q")
        assert top.return_code == 0

    drive(lambda: FIVE, look)
