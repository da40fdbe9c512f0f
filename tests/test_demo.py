"""In `relay demo`, two wrapped agents greet each other, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from support import Relay, wait_until

GREETINGS = re.compile(
    r"Bob reads +│ .*Hello Bob, I am Alice.*Alice reads +│ .*Hello Alice, I am Bob", re.DOTALL
)


class Demo:
    """The demo's command and environment, and a check for processes and files that it leaves."""

    def __init__(self, relay: Relay, tmp_path: Path) -> None:
        self.command = [*relay.command, "demo"]
        self._mark = f"DEMO_MARK={uuid.uuid4()}"  # every descendant inherits it
        self.temporary = relay.home / "t"
        self.temporary.mkdir()
        self.environment = {**relay.environment, "TMPDIR": str(self.temporary)}
        self.environment["DEMO_MARK"] = self._mark.partition("=")[2]

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not self._alive(), message=lambda: str(self._alive()))
        assert list(self.temporary.iterdir()) == []

    def _alive(self) -> list[str]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


@pytest.fixture
def demo(relay: Relay, tmp_path: Path) -> Demo:
    return Demo(relay, tmp_path)


def test_both_greetings_arrive_without_a_terminal(demo: Demo, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        run = subprocess.run(
            demo.command, env=demo.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=100
        )
    shown = (tmp_path / "out").read_text()
    assert run.returncode == 0, shown
    assert GREETINGS.search(shown), shown
    assert re.search(r"Bob received Alice's greeting after \d+ ms", shown)
    assert re.search(r"Alice received Bob's greeting after \d+ ms", shown)
    assert "\x1b" not in shown
    demo.assert_nothing_left()
    assert not (Path(demo.environment["RELAY_HOME"]) / "state").exists()


def test_the_demo_fails_if_the_greetings_do_not_arrive(demo: Demo) -> None:
    command = [*demo.command, "--timeout", "0"]
    run = subprocess.run(command, env=demo.environment, capture_output=True, text=True, timeout=100)
    assert run.returncode == 1
    assert "0 of 2 greetings arrived" in run.stderr
    demo.assert_nothing_left()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_used_in_terminals_unless_no_color_is_set(demo: Demo, no_color: str) -> None:
    environment = {**demo.environment, "NO_COLOR": no_color}
    terminal, inside = os.openpty()
    run = subprocess.Popen(demo.command, env=environment, stdin=inside, stdout=inside, stderr=inside)
    os.close(inside)
    shown = ""
    with open(terminal, "rb", buffering=0) as output, contextlib.suppress(OSError):  # EIO: it has ended
        while data := output.read(1 << 16):
            shown += data.decode(errors="replace")
    assert run.wait() == 0, shown
    assert ("\x1b[" in shown) == (not no_color)
    demo.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_demo_and_its_processes(demo: Demo, number: signal.Signals) -> None:
    with subprocess.Popen(demo.command, env=demo.environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if "Bob prints" in line:
                break
        os.kill(run.pid, number)
        run.stdout.read()
    assert run.returncode == 130
    demo.assert_nothing_left()
