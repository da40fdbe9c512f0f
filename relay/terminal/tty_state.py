"""A snapshot of a terminal: its line discipline and its foreground process."""

from __future__ import annotations

import termios

from relay.dataclass import dataclass
from relay.shim.pty import Pty, flags


@dataclass(frozen=True, slots=True)
class TtyState:
    """The line discipline of the agent's terminal (termios(3)) and its foreground process group.

    canonical, echo, icrnl: ICANON, ECHO and ICRNL of its termios.
    stops:       Ctrl-S stops its output (IXON).
    foreground:  the terminal's foreground process group, 0 if it has none.
    agent_group: the process group in which the agent was started.
    """

    canonical: bool
    echo: bool
    icrnl: bool
    foreground: int
    agent_group: int
    stops: bool = False


def tty_state(pty: Pty) -> TtyState:
    """Return the current state of the agent's terminal."""
    attributes = pty.attributes()
    canonical, echo, icrnl = flags(attributes)
    return TtyState(
        canonical=canonical,
        echo=echo,
        icrnl=icrnl,
        foreground=pty.foreground(),
        agent_group=pty.pid,
        stops=attributes is not None and bool(attributes[0] & termios.IXON),
    )
