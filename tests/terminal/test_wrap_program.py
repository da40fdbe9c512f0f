"""Programs that wrap an agent themselves (`Relay.wrap`), and continue afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from emulator import Emulator

from support import Relay

Open = Callable[..., Emulator]

CONTINUES = """
import os, signal
from relay import Relay

class Handled(Exception): ...

def handle(number, frame):
    raise Handled(number)

def state():
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {"wake-up fd": wakeup, "handlers": handlers, "descriptors": sorted(os.listdir("/dev/fd"))}

read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
signal.signal(signal.SIGTERM, handle)
before = state()
assert Relay(name="Alice").wrap("sh -c 'exit 3'") == 3
after = state()
print({name: (before[name], after[name]) for name in before if before[name] != after[name]}, flush=True)
try:
    os.kill(os.getpid(), signal.SIGTERM)
except Handled as handled:
    print("handled", handled, os.read(read, 1))
"""


@pytest.mark.parametrize("attached", [True, False])
def test_a_program_keeps_its_signal_handlers_and_descriptors(
    attached: bool, terminal: Open, relay: Relay
) -> None:
    command = (sys.executable, "-c", CONTINUES)
    if attached:
        outer = terminal(*command)
        assert outer.end() == 0, outer.lines()
        printed = outer.output.decode()
    else:
        printed = subprocess.run(
            command, env=relay.environment, cwd=relay.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, check=True,
        ).stdout  # fmt: skip
    assert printed.split() == ["{}", "handled", "15", r"b'\x0f'"]


IN_A_THREAD = """
from concurrent.futures import ThreadPoolExecutor
from relay import Relay, RelayError

with ThreadPoolExecutor() as pool:
    try:
        pool.submit(Relay(name="Alice").wrap, "touch started").result()
    except RelayError as error:
        print(error)
"""


def test_another_thread_is_refused_before_the_agent_starts(relay: Relay) -> None:
    """Python handles signals in the main thread only."""
    run = subprocess.run(
        [sys.executable, "-c", IN_A_THREAD], env=relay.environment, cwd=relay.home, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "call it from the program's main thread" in run.stdout
    assert not (relay.home / "started").exists()
