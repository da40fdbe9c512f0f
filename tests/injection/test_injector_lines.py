"""Injections into programs that read lines: real programs, a real PTY."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ptyagent import fake, running, shipped

from relay.errors import LedgerError, MessageRefused
from relay.injection import typist
from relay.injection.injection import Injection
from relay.injection.layout import LINE_BYTES
from relay.state.readiness import SCREEN_QUIET
from support import wait_until


def _bodies(received: str) -> list[str]:
    return [line.split("] ", 1)[1].rsplit(" [/relay ", 1)[0] for line in received.splitlines()]


def stop(pid: int) -> None:
    """Stop a process, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())


def test_a_line_is_typed_and_verified(tmp_path: Path) -> None:
    """R50: an injected text reaches the agent, complete and once."""

    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            await agent.shows("heard")
            line = agent.received()
            assert (
                line.startswith("[relay ") and " from Alice] hello [/relay " in line and line.endswith("]\n")
            )
            assert agent.typing == ["i0"]

    asyncio.run(main())


def test_text_submitted_at_the_start_waits_until_the_program_reads(tmp_path: Path) -> None:
    """R51: initial context from a session_start hook reaches the agent."""

    async def main() -> None:
        async with running(fake("lines", "--prompt", ""), tmp_path) as agent:
            agent.submit("You are on call.", kind="hook", source="session_start")
            assert await agent.ended() == ["injected"]
            await agent.until(agent.received)
            assert "hook session_start] You are on call. [/relay" in agent.received()

    asyncio.run(main())


def test_a_burst_arrives_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            for number in range(50):
                agent.submit(f"message {number}.", id=str(number))
            assert await agent.ended(50) == ["injected"] * 50
            assert agent.typing == [str(number) for number in range(50)]
            await agent.until(lambda: agent.received().count("\n") == 50)
            assert _bodies(agent.received()) == [f"message {number}." for number in range(50)]

    asyncio.run(main())


def test_the_closing_prompt_precedes_waiting_texts(tmp_path: Path) -> None:
    """R52: at the session's end the closing prompt is next, whatever else waits."""

    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            agent.submit("one", id="one")
            agent.submit("Save what you learnt.", id="closing", kind="closing", source="relay")
            await agent.ended(2)
            assert agent.typing == ["closing", "one"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "question", ["Install? [Y/n] ", "Passphrase: ", "Press Enter to go on", "Choice (1-3): "]
)
def test_nothing_is_typed_into_a_question(tmp_path: Path, question: str) -> None:
    async def main() -> None:
        async with running(fake("lines", "--ask", question), tmp_path) as agent:
            agent.submit("first")
            agent.submit("second")
            await agent.shows(question)
            await agent.verdict("prompting", "looks like a question")
            assert len(agent.outcomes) == 1
            agent.press(b"me\r")
            agent.rest()
            assert await agent.ended(2) == ["injected"] * 2
            await agent.until(lambda: "second" in agent.received())
            assert "answer: me\n" in agent.received()

    asyncio.run(main())


def test_a_choice_above_a_bare_prompt_is_a_question(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines", "--ask", "Delete all? (yes/no)\n> "), tmp_path) as agent:
            agent.submit("first")
            agent.submit("second")
            await agent.shows("Delete all?")
            await agent.verdict("prompting")
            assert len(agent.outcomes) == 1

    asyncio.run(main())


def test_a_question_in_a_message_is_not_the_programs(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(["cat"], tmp_path) as agent:
            agent.submit("Shall I? [Y/n]")
            agent.submit("Answer me. [y/N]")
            assert await agent.ended(2) == ["injected"] * 2

    asyncio.run(main())


def test_nothing_is_typed_while_the_terminal_does_not_echo(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("password"), tmp_path) as agent:
            agent.submit("hello")
            await agent.shows("Code for you")
            await agent.verdict("prompting", "password")
            agent.press(b"hunter2\r")
            agent.rest()
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: "hello" in agent.received())
            assert agent.received().startswith("password: hunter2\n[relay")

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports what a program waits for")
def test_a_silent_program_that_does_not_read_is_working(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("busy"), tmp_path) as agent:
            await agent.shows("thinking")
            agent.submit("hello")
            await agent.verdict("working", "it is not waiting for its terminal")
            os.kill(agent.pid, signal.SIGUSR1)
            await agent.verdict("prompting")
            agent.press(b"n\r")
            agent.rest()
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: "hello" in agent.received())
            assert agent.received().startswith("answer: n\n[relay")

    asyncio.run(main())


def test_texts_waiting_at_the_end_are_reported_as_untyped(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("busy"), tmp_path) as agent:
            agent.submit("one")
            agent.submit("two")
            agent.close()
            assert await agent.ended(2) == ["untyped"] * 2
            agent.submit("three")
            assert await agent.ended(3) == ["untyped"] * 3
            assert not agent.typing

    asyncio.run(main())


def test_a_draft_of_the_user_is_never_merged_with_a_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            await agent.verdict("ready")
            agent.press(b"dear Bo")
            agent.submit("hello")
            agent.rest()
            assert agent.injector.obstacle == "you have a half-typed line in it"
            agent.press(b"b\r")
            assert "you typed within" in (agent.injector.obstacle or "")
            agent.rest()
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: "hello" in agent.received())
            assert agent.received().startswith("dear Bob\n[relay ")

    asyncio.run(main())


@pytest.mark.parametrize(
    "command", [["bash", "--norc", "-i"], ["sh", "-i"], [sys.executable, "-i"], ["sqlite3"]]
)
def test_a_shell_or_interpreter_is_left_alone_unless_the_user_opts_in(
    tmp_path: Path, command: list[str]
) -> None:
    """Its prompt reveals such a program even if no profile knows it."""

    async def main() -> None:
        async with running(command, tmp_path) as agent:
            agent.submit("hello")
            await agent.verdict("unsafe", "prompt of a shell or language")
            assert not agent.typing

    asyncio.run(main())


def test_a_shell_is_typed_into_when_the_user_opts_in(tmp_path: Path) -> None:
    async def main() -> None:
        profile = replace(shipped("shell"), inject="auto")
        async with running(["bash", "--norc", "--noediting", "-i"], tmp_path, profile) as agent:
            agent.submit("echo ran-$((6*7))")
            assert await agent.ended() == ["injected"]

    asyncio.run(main())


def test_another_program_in_the_foreground_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        profile = replace(shipped("shell"), inject="auto")
        async with running(["bash", "--norc", "--noediting", "-i"], tmp_path, profile) as agent:
            await agent.verdict("ready")
            agent.press(b"cat\r")
            await agent.verdict("unsafe", "foreground")

    asyncio.run(main())


def test_a_long_line_is_split_before_the_kernel_cuts_it(tmp_path: Path) -> None:
    """R71: a text at the 10 KB limit arrives complete; no line is longer than the kernel accepts."""
    text = " ".join(f"word{number}" for number in range(2000))[: 10 * 1024].strip()

    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            agent.submit(text, kind="hook", source="lint")
            agent.submit("next")
            assert await agent.ended(2) == ["injected"] * 2
            await agent.until(lambda: "next" in agent.received())
            *parts, after = agent.received().splitlines()
            assert len(parts) > 1 and all(len(part) < LINE_BYTES for part in parts)
            assert " ".join(_bodies("\n".join(parts))) == text
            assert f" 1/{len(parts)} hook lint] " in parts[0]
            assert " from Alice] next [/relay" in after

    asyncio.run(main())


def test_each_of_several_lines_is_marked(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            agent.submit("one\n\n/two\n!three")
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: agent.received().count("\n") == 3)
            assert _bodies(agent.received()) == ["one", "/two", "!three"]
            assert [line.split("] ")[0].split()[2:] for line in agent.received().splitlines()] == [
                [f"{number}/3", "from", "Alice"] for number in (1, 2, 3)
            ]

    asyncio.run(main())


def test_interrupted_typing_is_uncertain(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(["sh", "-c", "read a; sleep 60"], tmp_path) as agent:
            agent.submit("one\ntwo")
            await agent.shows("[/relay")
        assert [str(outcome.result) for _, outcome in agent.outcomes] == ["uncertain"]

    asyncio.run(main())


def test_a_text_that_the_ledger_cannot_mark_is_typed_later_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            agent.refuse = LedgerError("the disk is full")
            agent.submit("one", id="one")
            agent.submit("two", id="two")
            await agent.until(lambda: agent.injector.obstacle == "the disk is full")
            assert not agent.outcomes
            agent.refuse = None
            assert await agent.ended(2) == ["injected"] * 2
            assert agent.typing == ["one", "two"]

    asyncio.run(main())


def test_the_closing_prompt_does_not_wait_for_the_ledger(tmp_path: Path) -> None:
    """R52"""

    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            agent.refuse = LedgerError("the disk is full")
            agent.submit("one", id="one")
            await agent.until(lambda: agent.injector.obstacle == "the disk is full")
            agent.refuse = None
            agent.submit("Save what you learnt.", id="closing", kind="closing", source="relay")
            assert await agent.ended(2) == ["injected"] * 2
            assert agent.typing == ["closing", "one"]

    asyncio.run(main())


def test_a_text_withdrawn_at_the_last_moment_is_skipped(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:

            def begin(injection: Injection) -> None:
                if injection.id == "one":
                    raise MessageRefused("it was dropped.")

            agent.begin = begin
            agent.submit("one", id="one")
            agent.submit("two", id="two")
            assert await agent.ended(2) == ["rejected", "injected"]
            assert agent.outcomes[0][1].detail == "it was dropped."
            await agent.until(agent.received)
            assert "one" not in agent.received()

    asyncio.run(main())


SUDDEN = """
import os, signal, termios
def echo(on):
    modes = termios.tcgetattr(0)
    modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, modes)
def ask(*_):
    echo(False)
    os.write(1, b"Password: ")
signal.signal(signal.SIGUSR1, ask)
os.write(1, b"up> ")
with open(os.environ["AGENT_LOG"], "ab", buffering=0) as log:
    while line := os.read(0, 4096):
        echo(True)
        log.write(line)
        os.write(1, b"ok\\n")
"""


@pytest.mark.parametrize("modes", ["", "stty -icanon; "], ids=["lines", "keys"])
def test_a_text_that_was_echoed_but_not_read_is_uncertain(
    modes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D8: the kernel's echo, or what it changes on the screen, is no proof: the agent may never read it."""
    monkeypatch.setattr(typist, "READ_TIMEOUT", 0.1)

    async def main() -> None:
        async with running(["sh", "-c", f"{modes}printf '> '; exec cat"], tmp_path) as agent:
            await agent.verdict("ready")
            write = agent.write

            def stop_first(data: bytes) -> None:
                stop(agent.pid)
                write(data)

            monkeypatch.setattr(agent, "write", stop_first)
            agent.submit("hello")
            assert await agent.ended() == ["uncertain"]
            assert b"hello" in agent.everything and agent.unread_keys()
            assert "the program has not read it" in agent.outcomes[0][1].detail

    asyncio.run(main())


def test_a_question_asked_while_the_ledger_is_written_is_not_answered(tmp_path: Path) -> None:
    """The final check follows the ledger write, which may take seconds."""

    async def main() -> None:
        async with running([sys.executable, "-c", SUDDEN], tmp_path) as agent:

            def slowly(injection: Injection) -> None:
                if not agent.typing:
                    os.kill(agent.pid, signal.SIGUSR1)
                    select.select([agent.master], [], [])  # until it has asked

            agent.begin = slowly
            await agent.shows("up> ")
            agent.submit("hello", id="one")
            await agent.verdict("prompting", "password")
            await agent.until(lambda: agent.deferred == ["one"])
            assert not agent.received()
            agent.press(b"hunter2\r")
            agent.rest()
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: "hello" in agent.received())
            assert agent.received().startswith("hunter2\n[relay ")

    asyncio.run(main())


ONE_KEY = """
read -n1 -p "Continue? [y/N] " answer
printf '\\nanswer: %s\\n' "$answer" | tee "$AGENT_LOG"
while read -p "> " line; do echo "$line" >> "$AGENT_LOG"; done
"""


def test_a_key_that_answered_a_question_is_not_a_draft(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(["bash", "-c", ONE_KEY], tmp_path) as agent:
            agent.submit("hello")
            await agent.verdict("prompting", "Continue? [y/N]")
            agent.press(b"y")
            agent.rest()
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: "hello" in agent.received())
            assert agent.received().lstrip().startswith("answer: y\n[relay ")

    asyncio.run(main())


def test_a_half_typed_line_is_still_a_draft_after_the_program_prints(tmp_path: Path) -> None:
    """The kernel still holds it."""
    program = "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'\\nnews\\n> '))\n"
    program += "os.write(1, b'> ')\nos.read(0, 4096)"

    async def main() -> None:
        async with running([sys.executable, "-c", program], tmp_path) as agent:
            await agent.verdict("ready")
            agent.press(b"n")
            await agent.shows("> n")
            os.kill(agent.pid, signal.SIGUSR1)
            await agent.shows("news")
            agent.rest()
            agent.submit("hello")
            await agent.until(lambda: time.monotonic() - agent.last_output() > SCREEN_QUIET)
            assert agent.injector.obstacle == "you have a half-typed line in it"
            assert not agent.typing

    asyncio.run(main())


def test_a_program_that_exits_while_typed_into_leaves_the_text_uncertain(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(["sh", "-c", "read a; read b"], tmp_path) as agent:
            agent.submit("one\ntwo\nthree")
            await agent.until(lambda: agent.typing)
            await agent.until(lambda: agent.everything.count(b"[relay") == 2)
            await agent.until(lambda: os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG))
            agent.close()
            assert await agent.ended() == ["uncertain"]

    asyncio.run(main())
