"""relay types into an empty input only, whatever keys the user has pressed in a real line editor."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from pathlib import Path

import pytest
from ptyagent import PtyAgent, fake, running, shipped

from relay.shim.process_wait import SCREEN_QUIET
from support import many

FAKES = Path(__file__).parent.parent / "fakes"
EDITORS = {
    "box": ("claude", "agent_box.py"),
    "readline": ("generic", "agent_editor.py", "readline"),
    "readline-vi": ("generic", "agent_editor.py", "readline-vi"),
    "toolkit": ("generic", "agent_editor.py", "toolkit"),
    "toolkit-vi": ("generic", "agent_editor.py", "toolkit-vi"),
}

TEXTS = ("a", "word ", "(", "ü", "two words", "\x1b[200~pasted\x1b[201~", "\x1b[200~two\rlines\x1b[201~")
EDITS = (
    *("\x7f", "\x17", "\x15", "\x0b", "\x1bd", "\x1b\x7f", "\x1b[3~", "\x04", "\x03"),  # erase, kill
    *("\x01", "\x05", "\x02", "\x06", "\x1b[D", "\x1b[C", "\x1bb", "\x1bf", "\x1b[H", "\x1b[F"),  # move
    *("\x19", "\x1by", "\x1f", "\x14", "\x1bu", "\x16a", "\x1b#"),  # yank, undo, transpose, quote
    *("\x1b[A", "\x1b[B", "\x10", "\x0e", "\x12f", "\x07", "\t", "\x0c"),  # recall, search, complete
)
MODES = ("\x1b", "i", "A", "x", "dd", "p", "u", "k", "0", "cw")  # of vi


def _ask(path: Path) -> str:
    """Return the text in the editor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.bind(b"")  # an abstract address of its own
        asking.settimeout(30)
        asking.sendto(b"?", str(path))
        return asking.recv(1 << 16).decode()


def _may_type(agent: PtyAgent) -> bool:
    agent.injector._typed._user.rest()
    return agent.injector._typed._user.obstacle() is None and agent.injector._gate.allows(agent.view.look())


async def _settled(agent: PtyAgent) -> None:
    """Wait until the program has read all keys and drawn what they do."""
    begun = agent._loop.time()
    quiet = SCREEN_QUIET + 0.1  # more than the editors' own time limit for Esc
    await agent.until(
        lambda: (
            not agent.unwritten()
            and not agent.unread_keys()
            and agent.view.output_quiet() > quiet
            and agent._loop.time() - begun > quiet
        )
    )


@pytest.mark.parametrize("editor", EDITORS)
def test_nothing_is_typed_beside_the_users_text(tmp_path: Path, editor: str) -> None:
    """And relay types again within a second once the input is empty, unless the next key may be a command."""
    asked, (profile, program, *arguments) = tmp_path / "asked", EDITORS[editor]
    argv = [sys.executable, str(FAKES / program), *arguments, str(asked)]

    async def main() -> None:
        async with running(argv, tmp_path, profile=shipped(profile)) as agent:
            await agent.until(lambda: b">" in agent.everything or "❯".encode() in agent.everything)
            for seed in range(many(50)):
                chance = random.Random(seed)
                keys = chance.choices(
                    (*TEXTS, *EDITS, *(MODES * editor.endswith("vi"))), k=chance.randint(1, 5)
                )
                for each in keys:
                    agent.press(each.encode())
                await _settled(agent)
                text, types = _ask(asked), _may_type(agent)
                assert not (types and text.strip()), f"{keys}: relay would type beside {text!r}"
                # While it handles Ctrl-C or Ctrl-D, the kernel echoes the next keys beside its prompt.
                moot = keys[-1] in {"\x1b", "\x16a", "\x12f"} or {"\x03", "\x04"} & {*keys}
                if not (text or moot or editor.endswith("vi")):
                    assert types, f"{keys}: {agent.injector._typed._user.obstacle()}, {agent.view.verdict}"
                agent.press(b"\x07\r\r")
                await agent.until(lambda: not _ask(asked))
                await _settled(agent)

    asyncio.run(main())


def test_a_prefix_key_delays_a_message_until_the_next_key(tmp_path: Path) -> None:
    """After a lone Esc, a line editor takes the first key of a text for a command."""
    argv = [sys.executable, str(FAKES / "agent_editor.py"), "readline", str(tmp_path / "asked")]

    async def main() -> None:
        async with running(argv, tmp_path) as agent:
            await agent.shows("> ")
            agent.press(b"\x1b")
            agent.submit("hello")
            await _settled(agent)
            assert "you pressed Esc" in str(agent.injector.obstacle) and not _ask(tmp_path / "asked")
            agent.press(b"l")  # makes the next word lower case: there is none
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: "] hello [/relay" in agent.received())
            assert agent.received().startswith("[relay ")

    asyncio.run(main())


def test_a_text_that_lost_its_beginning_is_not_submitted(tmp_path: Path) -> None:
    """In vi's command mode, it is a command."""
    asked = tmp_path / "asked"
    argv = [sys.executable, str(FAKES / "agent_editor.py"), "readline-vi", str(asked)]

    async def main() -> None:
        async with running(argv, tmp_path) as agent:
            await agent.shows("> ")
            agent.press(b"\x1b")
            await _settled(agent)
            agent.press(b"0")
            agent.submit("hello")
            assert await agent.ended() == ["uncertain"]
            ((_, outcome),) = agent.outcomes
            assert outcome.detail.startswith("Enter was not pressed: the program shows the text without its")
            assert not agent.received() and "[/relay" in _ask(asked)

    asyncio.run(main())


def test_a_stopped_terminal_gets_its_message_once_it_continues(tmp_path: Path) -> None:
    """Ctrl-S stops the echo, too, which proves that a text has arrived."""

    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            await agent.verdict("ready")
            agent.press(b"\x13")
            agent.submit("hello")
            await agent.until(lambda: "Ctrl-Q continues it" in str(agent.injector.obstacle))
            agent.press(b"\x11")
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: agent.received().count("hello") == 1)

    asyncio.run(main())
