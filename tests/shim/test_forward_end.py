"""The forwarder between the agent's terminal and the user's."""

from __future__ import annotations

import os
import signal

from relay.shim import ring
from relay.shim.forward import Forwarder
from relay.shim.loop import Loop
from relay.shim.pty import Pty


class EndCounter:
    """A listener that counts the ends of the agent's terminal."""

    def __init__(self) -> None:
        self.count = 0

    def ended(self) -> None:
        self.count += 1

    def lost(self, what: str) -> None: ...
    def command(self, command: str) -> None: ...
    def settled(self) -> None: ...
    def input_over(self) -> None: ...
    def drawn_in_background(self) -> None: ...
    def typed_in_pause(self, keys: bytes) -> None: ...


def test_the_end_of_the_agents_terminal_is_reported_once() -> None:
    """The listener sets a timer, which must not be set again once it is cancelled."""
    pid = os.fork()
    if pid == 0:  # a shim leads its own session, without a terminal
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # sent at the end of its terminal
            listener, loop = EndCounter(), Loop()
            pty = Pty.spawn("/bin/true", ["true"], {})
            pty.await_start("true")
            forwarder = Forwarder(loop, pty, ring.RingWriter(ring.make(), lambda: None), listener)
            while not forwarder.over:
                forwarder.turn()
            os.waitpid(pty.pid, 0)
            code = 0 if listener.count == 1 else 100 + listener.count
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
