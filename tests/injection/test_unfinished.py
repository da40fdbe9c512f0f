"""Whether a text is alone in an agent's input, on screens of real agents."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from injection.ptyagent import fake, running, shipped
from injection.test_injector_lines import stop
from relay import data
from relay.injection import layout
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import Style
from relay.injection.unfinished import Step, Unfinished, alone, find
from relay.lifecycle import SessionBegan
from relay.state.detection import ScreenSnapshot

SCREENS = data.directory("patterns") / "screens"
MARK = "k3f9"
DRAFT = "half a draft"

INDENTS = {"claude": "  ", "codex": "  ", "gemini": "   ", "opencode": "  ┃  ", "pi": "", "qwen": "  "}
"""What each agent draws before the second row of its input (working-draft-pasted.txt)."""


def typed(body: str, width: int = 0) -> list[str]:
    """Return the rows of a text as relay types it, wrapped at words after `width` columns (0: unwrapped)."""
    (text,) = layout.lay_out(Injection("1", body, "Bob"), Style.PASTE, MARK)
    rows = [""]
    for word in text.split(" "):
        if width and rows[-1] and len(rows[-1]) + len(word) >= width:
            rows.append("")
        rows[-1] += f" {word}" if rows[-1] else word
    return rows


def drawn(agent: str, rows: list[str], *, draft: str = DRAFT) -> ScreenSnapshot:
    """Return the screen of `agent` with `rows` in place of the draft in its input."""
    screen = (SCREENS / agent / "working-draft-typed.txt").read_text().split("\n")
    y = next(y for y in reversed(range(len(screen))) if DRAFT in screen[y])
    first, *others = rows
    lines = [screen[y].replace(DRAFT, first), *(INDENTS[agent] + row for row in others)]
    return ScreenSnapshot((*screen[:y], *(line.rstrip() for line in lines), *screen[y + 1 :]))


def is_alone(agent: str, screen: ScreenSnapshot) -> bool:
    found = find(screen.rows, MARK)
    return found is not None and alone(screen, found, shipped(agent))


def test_a_text_alone_in_the_input_is_recognised(subtests: pytest.Subtests) -> None:
    for width, agent in itertools.product([0, 60, 20], INDENTS):
        with subtests.test(f"{agent}, {width} columns"):
            rows = typed("please look at the tests, and say what is wrong with them", width)
            screen = drawn(agent, rows)
            assert is_alone(agent, screen)
            found = find(screen.rows, MARK)
            assert found is not None
            shown = "".join(found.text.replace("┃", "").split())
            assert shown == "".join("".join(rows).split())


@pytest.mark.parametrize("agent", INDENTS)
def test_a_text_next_to_the_users_is_not_alone(agent: str) -> None:
    """The user's text is before it, after it, or in a row below."""
    (row,) = typed("hello")
    for rows in (["mine " + row], [row + " mine"], [row, "mine"], ["mine", row]):
        assert not is_alone(agent, drawn(agent, rows)), rows


LONG = "please look at the tests, all of them, and say what is wrong with each of them; then fix them"


def test_the_visible_end_of_a_text_is_recognised(subtests: pytest.Subtests) -> None:
    for width, agent in itertools.product([0, 30], INDENTS):
        with subtests.test(f"{agent}, {width} columns"):
            whole = typed(LONG, width)
            shown = whole[-2:] if width else [whole[0][-40:]]
            screen = drawn(agent, shown)
            end = "".join("".join(whole).split())
            found = find(screen.rows, MARK, end)
            assert found is not None
            assert found.cut
            assert "".join(found.text.replace("┃", "").split()) == "".join("".join(shown).split())
            assert alone(screen, found, shipped(agent))
            assert find(screen.rows, MARK) is None
            assert find(drawn(agent, [*shown[:-1], shown[-1] + " mine"]).rows, MARK, end) is None


@pytest.mark.parametrize("agent", INDENTS)
def test_text_before_the_visible_end_is_not_part_of_it(agent: str) -> None:
    whole = typed(LONG, 30)
    shown = ["mine " + whole[-2], whole[-1]]
    screen = drawn(agent, shown)
    found = find(screen.rows, MARK, "".join("".join(whole).split()))
    assert found is None or not alone(screen, found, shipped(agent))


SCREEN_FILES = [path for path in SCREENS.glob("*/*.txt") if path.parent.name in INDENTS]


def test_a_submitted_text_is_not_in_the_input(subtests: pytest.Subtests) -> None:
    """It is above whatever the agent shows: an answer, a dialog, an empty input, another draft."""
    for path in SCREEN_FILES:
        with subtests.test(f"{path.parent.name} {path.stem}"):
            (row,) = typed("hello")
            for prefix in ("", "> ", "❯ ", "› "):
                screen = ScreenSnapshot((prefix + row, "", *path.read_text().split("\n")))
                assert not is_alone(path.parent.name, screen)


def test_the_agents_own_hook_confirms_that_a_text_has_arrived(tmp_path: Path) -> None:
    """The next session recognises the text by its mark, and settles it once."""
    injection = Injection("1", "hello", "Bob")
    ((text,), message) = layout.lay_out(injection, Style.PASTE, MARK), asdict(injection)
    kept = {"mark": MARK, "digest": "", "lines": False, "position": 0, "outcome": None}

    async def main() -> tuple[bool, list[tuple[str, Outcome]]]:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            agent.progress.keep({**kept, "injections": [message]})
            agent.bus.publish(SessionBegan())
            ours = await agent.report_prompt(text)
            await agent.ended()
            await agent.report_prompt(text)
            return ours, agent.outcomes

    ours, outcomes = asyncio.run(main())
    assert ours
    assert outcomes == [("1", Outcome(Result.INJECTED, "", "typed", "user", "hook"))]


def test_an_echo_counts_once_the_program_has_read_the_line(tmp_path: Path) -> None:
    """D8: the agent may be killed together with the session that typed."""
    injection = Injection("1", "hello", "Bob")
    ((text,), message) = layout.lay_out(injection, Style.LINES, MARK), asdict(injection)
    kept = {"mark": MARK, "digest": "", "lines": True, "position": 0, "outcome": None}

    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            await agent.verdict("ready")
            stop(agent.pid)
            agent.progress.keep({**kept, "injections": [message]})
            left = Unfinished(agent, agent.view, agent.progress)
            left.restore()
            agent.write(text.encode() + b"\r")
            await agent.until(lambda: b"hello" in agent.everything and not agent.output_pending())
            left.output(agent.everything, 1)
            assert left.decide() is Step.WAIT
            os.kill(agent.pid, signal.SIGCONT)
            steps: list[Step | Outcome] = []
            await agent.until(lambda: steps.append(left.decide()) or steps[-1] is not Step.WAIT)
            assert steps[-1] == Outcome(Result.INJECTED, "", "typed", "user", "echo")

    asyncio.run(main())
