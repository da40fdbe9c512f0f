"""A text alone in an agent's input, on screens of real agents."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest

from injection.ptyagent import fake, running, shipped
from relay import data
from relay.injection import layout
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import Style
from relay.injection.unfinished import alone, find
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


def stands_alone(agent: str, screen: ScreenSnapshot) -> bool:
    found = find(screen.rows, MARK)
    return found is not None and alone(screen, found, shipped(agent))


@pytest.mark.parametrize("width", [0, 60, 20], ids=["one row", "some rows", "many rows"])
@pytest.mark.parametrize("agent", INDENTS)
def test_a_text_alone_in_the_input(agent: str, width: int) -> None:
    rows = typed("please look at the tests, and say what is wrong with them", width)
    screen = drawn(agent, rows)
    assert stands_alone(agent, screen)
    found = find(screen.rows, MARK)
    assert found is not None
    shown = "".join(found.text.replace("┃", "").split())
    assert shown == "".join("".join(rows).split())


@pytest.mark.parametrize("agent", INDENTS)
def test_a_text_that_is_not_alone(agent: str) -> None:
    """The user's text is before it, after it, or in a row below."""
    (row,) = typed("hello")
    for rows in (["mine " + row], [row + " mine"], [row, "mine"], ["mine", row]):
        assert not stands_alone(agent, drawn(agent, rows)), rows


LONG = "please look at the tests, all of them, and say what is wrong with each of them; then mend them"


@pytest.mark.parametrize("width", [0, 30], ids=["one row", "some rows"])
@pytest.mark.parametrize("agent", INDENTS)
def test_an_input_that_shows_the_end_of_a_text_only(agent: str, width: int) -> None:
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
def test_what_stands_before_the_end_of_a_text_is_no_part_of_it(agent: str) -> None:
    whole = typed(LONG, 30)
    shown = ["mine " + whole[-2], whole[-1]]
    screen = drawn(agent, shown)
    found = find(screen.rows, MARK, "".join("".join(whole).split()))
    assert found is None or not alone(screen, found, shipped(agent))


@pytest.mark.parametrize(
    "path",
    [path for path in SCREENS.glob("*/*.txt") if path.parent.name in INDENTS],
    ids=lambda path: f"{path.parent.name} {path.stem}",
)
def test_a_text_that_was_submitted_is_in_no_input(path: Path) -> None:
    """The text is above whatever the agent shows: its answer, a dialog, an empty input, another draft."""
    (row,) = typed("hello")
    for prefix in ("", "> ", "❯ ", "› "):
        screen = ScreenSnapshot((prefix + row, "", *path.read_text().split("\n")))
        assert not stands_alone(path.parent.name, screen)


def test_the_agents_own_hook_tells_that_a_text_has_arrived(tmp_path: Path) -> None:
    """The report waits for the next session, which recognises the text by its mark, and settles it once."""
    injection = Injection("1", "hello", "Bob")
    ((text,), message) = layout.lay_out(injection, Style.PASTE, MARK), asdict(injection)
    kept = {"mark": MARK, "digest": "", "lines": False, "position": 0, "outcome": None}

    async def main() -> tuple[bool, list[tuple[str, Outcome]]]:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            agent.progress.keep({**kept, "injections": [message]})
            agent.bus.publish(SessionBegan(resumed=True))
            ours = await agent.hook_tells(text)
            await agent.ended()
            await agent.hook_tells(text)
            return ours, agent.outcomes

    ours, outcomes = asyncio.run(main())
    assert ours
    assert outcomes == [("1", Outcome(Result.INJECTED, "", "typed", "user", "hook"))]
