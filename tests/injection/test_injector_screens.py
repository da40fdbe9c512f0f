"""Injections into programs that draw their own input: real programs, a real PTY, the real screen."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from ptyagent import PtyAgent, fake, running, shipped

TEXT = "line one\n@relay:Bob not said\n\n\ttab \\"


def _submitted(agent: PtyAgent) -> list[str]:
    return [entry["submitted"] for entry in _log(agent) if "submitted" in entry]


def _log(agent: PtyAgent) -> list[dict[str, str]]:
    return [json.loads(line) for line in agent.received().splitlines()]


def test_a_paste_arrives_as_one_exact_text(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            agent.submit(TEXT)
            assert await agent.ended() == ["injected"]
            (text,) = _submitted(agent)
            first, *middle, last = text.split("\n")
            assert first.startswith("[relay ") and first.endswith(" from Alice]")
            assert "\n".join(middle) == TEXT
            assert last == "[/relay " + first.split()[1] + "]"
            assert len(_log(agent)) == 1  # no second Enter

    asyncio.run(main())


def test_several_pastes_one_after_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            agent.submit("one")
            agent.submit("two")
            assert await agent.ended(2) == ["injected"] * 2
            assert [text.split("] ")[1].split(" [")[0] for text in _submitted(agent)] == ["one", "two"]

    asyncio.run(main())


def test_a_second_enter_where_the_first_was_not_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "deaf-enter"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            assert len(_log(agent)) == 1

    asyncio.run(main())


def test_a_placeholder_for_the_paste_is_an_echo_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "collapse", "deaf-enter"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            assert len(_log(agent)) == 1

    asyncio.run(main())


def test_an_input_that_never_empties_is_uncertain(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "no-enter"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["uncertain"]

    asyncio.run(main())


def test_an_input_that_shows_nothing_is_submitted_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "silent"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            assert len(_submitted(agent)) == 1

    asyncio.run(main())


def test_without_bracketed_paste_every_line_is_marked(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui"), tmp_path) as agent:
            agent.submit("one\n\t!two")
            assert await agent.ended() == ["injected"]
            texts = _submitted(agent)
            assert [text.split()[2] for text in texts] == ["1/2", "2/2"]
            assert texts[1].endswith("]     !two [/relay " + texts[0].split()[1] + "]")
            assert not [entry for entry in _log(agent) if "control" in entry]  # a tab would complete

    asyncio.run(main())


READLINE = """
import os, readline
while True:
    line = input("you> ")
    with open(os.environ["AGENT_LOG"], "a") as log:
        print(repr(line), file=log)
"""


def test_a_program_that_reads_with_readline(tmp_path: Path) -> None:
    async def main() -> None:
        async with running([sys.executable, "-c", READLINE], tmp_path) as agent:
            agent.submit("one\ntwo")
            agent.submit("three")
            assert await agent.ended(2) == ["injected"] * 2
            await agent.until(lambda: "three" in agent.received())
            assert agent.received().index(" one ") < agent.received().index(" two ")

    asyncio.run(main())


def test_an_enter_of_the_person_in_the_middle_is_not_followed_by_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "silent"), tmp_path) as agent:
            agent.submit("hello")
            await agent.until(lambda: agent.typing)
            agent.press(b"\r")
            assert await agent.ended() == ["uncertain"]
            await agent.until(lambda: _log(agent))
            assert len(_log(agent)) == 1

    asyncio.run(main())


def test_a_dialog_is_never_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "dialog"), tmp_path) as agent:
            agent.submit("hello")
            await agent.verdict("prompting", "reads as a dialog")
            assert not agent.typing and not agent.received()

    asyncio.run(main())


def test_a_message_that_reads_like_a_dialog_does_not_stop_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            agent.submit("Press Enter, or Esc to cancel")
            agent.submit("Proceed? [y/N]")
            agent.submit("after")
            assert await agent.ended(3) == ["injected"] * 3

    asyncio.run(main())


def test_an_unknown_full_screen_program_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "alternate"), tmp_path) as agent:
            agent.submit("hello")
            await agent.verdict("unsafe", "full-screen")
            assert not agent.typing
        known = replace(shipped(), fullscreen=True)
        async with running(fake("tui", "paste", "alternate"), tmp_path, known) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]

    asyncio.run(main())


def test_a_program_that_reads_nothing_hangs_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("deaf"), tmp_path) as agent:
            agent.submit("x" * 60_000, id="large")
            agent.submit("next", id="next")
            assert await agent.ended() == ["uncertain"]
            assert agent.unwritten() > 0
            assert agent.injector.obstacle == "it has not read what was typed before"
            agent.injector.close()
            assert await agent.ended(2) == ["uncertain", "untyped"]
            assert agent.typing == ["large"]

    asyncio.run(main())
