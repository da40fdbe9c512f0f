"""What the kernel knows about a waiting program: real programs under a real PTY."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from ptyagent import PtyAgent, fake, running

from relay.shim.process_wait import Wait, Waiting, look

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports what a program waits for")

ASYNCIO = """
import asyncio, sys
async def main(watch):
    if watch:
        asyncio.get_running_loop().add_reader(0, lambda: None)
    print("up", flush=True)
    await asyncio.Event().wait()
asyncio.run(main(%s))
"""
THREAD = "import threading; threading.Thread(target=input).start(); threading.Event().wait()"


async def _wait(agent: PtyAgent, wait: Wait) -> Waiting:
    await agent.until(lambda: look(agent.pid).wait is wait)
    return look(agent.pid)


def _finds(tmp_path: Path, argv: list[str], wait: Wait) -> None:
    async def main() -> None:
        async with running(argv, tmp_path) as agent:
            if "up" in argv[-1]:
                await agent.shows("up")
            await _wait(agent, wait)

    asyncio.run(main())


def _sleeps(pid: int) -> bool:
    """Return whether `sleep` sleeps there, or in a child process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any("(sleep) S" in Path(f"/proc/{each}/stat").read_text() for each in (pid, *children))


@pytest.mark.parametrize(
    "argv",
    [
        ["cat"],
        ["sh", "-c", "read line; read more"],
        ["sh", "-c", "cat; true"],  # a child in the same process group
        [sys.executable, "-c", "input()"],
        [sys.executable, "-c", THREAD],
    ],
)
def test_a_program_that_reads_its_terminal_is_waiting(tmp_path: Path, argv: list[str]) -> None:
    _finds(tmp_path, argv, Wait.READ)


def test_a_program_that_polls_its_terminal_may_be_waiting(tmp_path: Path) -> None:
    _finds(tmp_path, [sys.executable, "-c", ASYNCIO % True], Wait.POLL)


@pytest.mark.parametrize(
    "argv", [["sleep", "60"], [sys.executable, "-c", ASYNCIO % False], ["sh", "-c", "sleep 60; true"]]
)
def test_a_program_that_waits_for_something_else_is_busy(tmp_path: Path, argv: list[str]) -> None:
    async def main() -> None:
        async with running(argv, tmp_path) as agent:
            if "up" in argv[-1]:
                await agent.shows("up")
            else:
                await agent.until(lambda: _sleeps(agent.pid))  # before that, nothing is known
            for _ in range(20):
                assert look(agent.pid).wait is Wait.BUSY
                await asyncio.sleep(0)

    asyncio.run(main())


def test_a_wait_is_distinguished_from_the_next_one(tmp_path: Path) -> None:
    """When the next one starts, the text typed into the first has been read: it is not type-ahead."""

    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            first = await _wait(agent, Wait.READ)
            assert look(agent.pid) == first
            agent.write(b"x\r")
            await agent.shows("heard")
            await agent.until(lambda: look(agent.pid).wait is Wait.READ)
            assert look(agent.pid) != first

    asyncio.run(main())


def test_a_stopped_program_is_not_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(["cat"], tmp_path) as agent:
            await _wait(agent, Wait.READ)
            os.kill(agent.pid, signal.SIGSTOP)
            await _wait(agent, Wait.BUSY)

    asyncio.run(main())


def test_a_process_group_that_is_gone_is_unknown() -> None:
    assert look(2**22 + 1).wait is Wait.UNKNOWN
