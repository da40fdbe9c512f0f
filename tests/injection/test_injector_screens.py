"""Injections into programs that draw their own input: real programs, a real PTY, the real screen."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ptyagent import FAKES, PtyAgent, fake, running, shipped

from relay.injection import typist
from relay.state.reasons import BUSY

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
            assert "\n".join(middle) == TEXT.replace("@relay", "> @relay")
            assert last == "[/relay " + first.split()[1] + "]"
            assert len(_log(agent)) == 1  # no second Enter

    asyncio.run(main())


def test_several_pastes_arrive_one_after_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            agent.submit("one")
            agent.submit("two")
            assert await agent.ended(2) == ["injected"] * 2
            assert [text.split("] ")[1].split(" [")[0] for text in _submitted(agent)] == ["one", "two"]

    asyncio.run(main())


def test_enter_is_pressed_again_if_the_first_was_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "deaf-enter"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            assert len(_log(agent)) == 1

    asyncio.run(main())


def test_a_placeholder_counts_as_the_echo_of_a_paste(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "collapse", "deaf-enter"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            assert len(_log(agent)) == 1

    asyncio.run(main())


def test_a_text_that_stays_in_the_input_is_uncertain(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "no-enter"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["uncertain"]

    asyncio.run(main())


def test_a_text_is_submitted_even_if_the_input_shows_nothing(tmp_path: Path) -> None:
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


def test_a_program_with_readline_gets_its_lines_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with running([sys.executable, "-c", READLINE], tmp_path) as agent:
            agent.submit("one\ntwo")
            agent.submit("three")
            assert await agent.ended(2) == ["injected"] * 2
            await agent.until(lambda: "three" in agent.received())
            assert agent.received().index(" one ") < agent.received().index(" two ")

    asyncio.run(main())


def test_keys_typed_during_an_injection_follow_it(tmp_path: Path) -> None:
    """The user's keys are neither merged with the text nor lost."""

    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            agent.submit("hello")
            await agent.shows("[/relay")
            agent.press(b"my own")
            agent.press(b" line\r")
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: len(_log(agent)) == 2)
            injected, typed = _submitted(agent)
            assert injected.endswith("]") and typed == "my own line"

    asyncio.run(main())


def test_a_dialog_is_never_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "dialog"), tmp_path) as agent:
            agent.submit("hello")
            await agent.verdict("prompting", "it shows a dialog")
            assert not agent.typing and not agent.received()

    asyncio.run(main())


DIGIT = f"""
import os, sys, tty
tty.setraw(0)
os.write(1, "\x1b[?2004hRun rm -rf build?\\r\\n❯ 1. Yes\\r\\n  2. No\\r\\n\\r\\nEsc to cancel\\r\\n".encode())
while os.read(0, 1) != b"1":
    pass
os.write(1, b"\x1b[2J\x1b[H")
os.execv(sys.executable, [sys.executable, "-S", "{FAKES}/agent_tui.py", "paste"])
"""


def test_a_digit_that_answered_a_dialog_is_not_a_draft(tmp_path: Path) -> None:
    async def main() -> None:
        async with running([sys.executable, "-c", DIGIT], tmp_path) as agent:
            agent.submit("hello")
            await agent.verdict("prompting", "it shows a dialog")
            agent.press(b"1")
            agent.rest()
            assert await agent.ended() == ["injected"]
            assert "hello" in _submitted(agent)[0]

    asyncio.run(main())


def test_a_draft_in_an_input_box_remains_one_whatever_the_program_draws(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            await agent.verdict("ready")
            for keys in (b"d", b"ear"):
                agent.press(keys)
                agent.rest()
                await agent.shows(keys.decode())
                await agent.verdict("working", "there is unsent text in its input")
                agent.submit("hello")
                assert agent.injector.obstacle == "you have a half-typed line in it"
            agent.press(b"\x03")

    asyncio.run(main())


def test_enter_is_not_pressed_while_output_is_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typist, "PRINT_TIMEOUT", 0.05)

    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            pending = agent.output_pending
            # Output keeps coming once the text is in the input.
            monkeypatch.setattr(agent, "output_pending", lambda: b"[/relay" in agent.everything or pending())
            agent.submit("hello")
            assert await agent.ended() == ["uncertain"]
            assert "Enter was not pressed" in agent.outcomes[0][1].detail
            assert not _submitted(agent)

    asyncio.run(main())


def test_a_message_that_reads_like_a_dialog_does_not_block_the_next(tmp_path: Path) -> None:
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


def test_a_program_that_reads_nothing_does_not_hang_relay(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("deaf"), tmp_path) as agent:
            agent.submit("x" * 60_000, id="large")
            agent.submit("next", id="next")
            await agent.until(lambda: agent.injector.obstacle == BUSY)
            assert await agent.ended() == ["uncertain"]
            assert agent.unwritten() > 0
            assert agent.injector.obstacle == "it has not read the previous input"
            agent.close()
            assert await agent.ended(2) == ["uncertain", "untyped"]
            assert agent.typing == ["large"]

    asyncio.run(main())
