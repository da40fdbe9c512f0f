"""The agent's terminal, as the injector sees it: the session provides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from relay.state.evidence import Evidence


@dataclass(frozen=True, slots=True)
class TtyState:
    """The line discipline of the agent's terminal (termios(3)) and whose it is now.

    canonical, echo, icrnl: ICANON, ECHO and ICRNL of its termios.
    foreground:  the terminal's foreground process group, 0 if it has none.
    agent_group: the process group that the agent was started in.
    """

    canonical: bool
    echo: bool
    icrnl: bool
    foreground: int
    agent_group: int


class Port(Protocol):
    """The terminal of one agent. Every method returns at once; all are called on the event loop's thread."""

    def write(self, data: bytes) -> None:
        """Queue `data` for the agent's terminal, after what is queued already."""
        ...

    def reserve(self) -> None:
        """Keep from the agent what the person types from now on, until `release`."""
        ...

    def reserved(self) -> bool:
        """Whether `reserve` is in force, and the injector was told of all that the person typed before."""
        ...

    def release(self) -> None:
        """Let through what the person types, and has typed meanwhile."""
        ...

    def unwritten(self) -> int:
        """Bytes queued that the agent's terminal has not taken yet."""
        ...

    def tty(self) -> TtyState: ...

    def output_pending(self) -> bool:
        """Whether output of the agent is not in `unfinished` and `screen_text` yet.

        It waits in the kernel (poll(2) the master with a timeout of 0: FIONREAD misses what the kernel is
        still moving) or between the reading and the analysing thread.
        """
        ...

    def bracketed_paste(self) -> bool:
        """Whether the program has switched mode 2004 on (xterm ctlseqs)."""
        ...

    def alternate(self) -> bool:
        """Whether the alternate screen is shown (mode 1049 and its elders)."""
        ...

    def unfinished(self) -> str:
        """The text of the line that the cursor stands on."""
        ...

    def screen_text(self) -> list[str]:
        """The visible rows, from the top; empty where there is no virtual screen."""
        ...

    def title(self) -> str:
        """What the program has set as its terminal's title; empty where there is no virtual screen."""
        ...

    def evidence(self) -> tuple[Evidence, ...]:
        """What the agent's hooks and its status reports say of its state now."""
        ...

    def last_output(self) -> float:
        """When the agent's last byte came, or when it was started (seconds, time.monotonic)."""
        ...

    def output_offset(self) -> int:
        """Bytes that the agent has put out so far."""
        ...
