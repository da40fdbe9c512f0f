"""`relay top --host`: the agents of another host, over a program that does what ssh does, in another home."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from screens import rows

from relay.control.board import Board, look, merged
from relay.control.commands import CommandEnd
from relay.home import Home
from relay.top.app import Top
from relay.top.choice_list import ChoiceList
from relay.top.remote import RemoteHost
from session.fake_agent import FakeAgent
from support import Relay, eventually, wait_until

SSH = f"""#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ "$2" = far ] || {{ echo "ssh: Could not resolve hostname $2" >&2; exit 255; }}
relay() {{ RELAY_HOME=$FAR_HOME exec {sys.executable} -m relay "$@"; }}
eval "$3"
"""


@pytest.fixture
def far(relay: Relay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Relay:
    """Return the home of the host that `ssh far` reaches."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAR_HOME", str(relay.home))
    return relay


@pytest.fixture
def host(far: Relay, tmp_path: Path) -> Iterator[RemoteHost]:
    host = RemoteHost("far", None, tmp_path)
    host.start()
    yield host
    host.stop()
    host.join()


def test_its_agents_are_listed_shown_answered_and_written_to(
    far: Relay, host: RemoteHost, tmp_path: Path
) -> None:
    here = Home.from_env({"RELAY_HOME": str(tmp_path / "here")}).ensure()
    agent = FakeAgent(far, "Ann").wrap()
    agent.say("@relay:you It is built.")
    agent.say("Overwrite it? [y/N] ", end="")

    def everywhere() -> Board:
        return merged([look(here), *([host.board] if host.board else [])], host.problem)

    async def nothing(*words: str, input: str) -> CommandEnd:
        raise AssertionError(f"not on this host: {words}")

    async def drive() -> None:
        top = Top(everywhere, lambda _: None, nothing, {"far": host})
        async with top.run_test(size=(100, 30)) as pilot:

            async def shows(*texts: str) -> None:
                await eventually(lambda: all(text in "\n".join(rows(top)) for text in texts))

            await shows("Ann@far", "1 needs you", "Overwrite it? [y/N]")
            await eventually(lambda: top.query_one("#list", ChoiceList).chosen)
            await shows("It is built.")  # its screen
            await pilot.press("a")
            await shows("Ann asks")
            await pilot.press("1")
            await shows("Typed 'y' and Enter")
            await pilot.press("m")
            await shows("Message to Ann")
            await pilot.press(*"hello", "enter")
            await pilot.press("i")
            await shows("Ann says to you: It is built.")
            await pilot.press("d")
            await eventually(lambda: host.board is not None and not host.board.inbox)

    asyncio.run(drive())
    agent.receives("hello")
    assert far("inbox", "--json").stdout.strip() == "[]"


def test_a_host_that_cannot_be_reached_is_said_and_hides_nothing(far: Relay, tmp_path: Path) -> None:
    host = RemoteHost("gone", None, tmp_path)
    host.start()
    wait_until(lambda: "connecting" not in host.problem)
    assert host.problem == "gone: ssh: Could not resolve hostname gone"
    host.stop()
    host.join()
    assert merged([Board((), ())], host.problem).problem == host.problem


def test_another_version_is_said(far: Relay, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\necho '{}'; exec cat\n")
    host = RemoteHost("far", None, tmp_path)
    host.start()
    wait_until(lambda: host.problem == "far runs another version of relay.")
    host.stop()
    host.join()


def test_the_board_is_printed_whenever_it_changes_until_the_input_ends(relay: Relay) -> None:
    command = [*relay.command, "top", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=relay.environment, stdin=pipe, stdout=pipe) as printing:
        assert printing.stdin is not None and printing.stdout is not None
        assert json.loads(printing.stdout.readline()) == {"agents": [], "inbox": []}
        relay("send", "--from", "ci", "you", "It is built.")
        assert json.loads(printing.stdout.readline())["inbox"][0]["text"] == "It is built."
        printing.stdin.close()
        assert printing.wait() == 0
