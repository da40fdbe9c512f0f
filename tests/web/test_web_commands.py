"""What a page is answered if a command of relay meets a defect of relay's own."""

from __future__ import annotations

import asyncio

import pytest

from relay.control.commands import Commands
from relay.errors import RelayError


def test_a_defect_is_answered_and_its_traceback_is_in_the_servers_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken(_: list[str]) -> int:
        print("what a command prints is not shown there")
        raise ValueError("no such row")

    commands = Commands(broken)
    try:
        with pytest.raises(RelayError, match=r"ValueError.*`relay ps` in a terminal says more"):
            asyncio.run(commands.run("ps"))
    finally:
        commands.close()
    shown = capfd.readouterr()
    assert shown.err.rstrip().endswith("ValueError: no such row")
    assert "is not shown" not in shown.err + shown.out
