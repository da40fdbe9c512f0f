"""The agent's terminal as the injector sees it: a view on the forward thread, the PTY and the screen."""

from __future__ import annotations

from collections.abc import Callable

from relay.readers.auto import AutoReader
from relay.session.pump import OutputPump
from relay.state.evidence import Evidence
from relay.state.port import TtyState
from relay.terminal.forward import Forwarder
from relay.terminal.pty import Pty, flags


class SessionPort:
    """Implements relay.state.port.Port. `evidence`: what the agent's hooks and reports say now."""

    def __init__(
        self,
        forwarder: Forwarder,
        pty: Pty,
        reader: AutoReader,
        pump: OutputPump,
        evidence: Callable[[], tuple[Evidence, ...]] = tuple,
    ) -> None:
        self._forwarder = forwarder
        self._pty = pty
        self._reader = reader
        self._pump = pump
        self._evidence = evidence

    def write(self, data: bytes) -> None:
        self._forwarder.write(data)

    def reserve(self) -> None:
        self._forwarder.reserve(True)

    def reserved(self) -> bool:
        return self._forwarder.reserved and not self._forwarder.tee

    def release(self) -> None:
        self._forwarder.reserve(False)

    def unwritten(self) -> int:
        return self._forwarder.unwritten

    def tty(self) -> TtyState:
        canonical, echo, icrnl = flags(self._pty.attributes())
        return TtyState(
            canonical=canonical,
            echo=echo,
            icrnl=icrnl,
            foreground=self._pty.foreground(),
            agent_group=self._pty.pid,
        )

    def output_pending(self) -> bool:
        return self._forwarder.output_pending()

    def bracketed_paste(self) -> bool:
        return self._reader.screen is not None and self._reader.screen.bracketed_paste

    def alternate(self) -> bool:
        return self._reader.screen is not None and self._reader.screen.alternate

    def unfinished(self) -> str:
        return self._reader.unfinished()

    def screen_text(self) -> list[str]:
        return [] if self._reader.screen is None else [row.text for row in self._reader.screen.rows()]

    def title(self) -> str:
        return "" if self._reader.screen is None else self._reader.screen.title

    def evidence(self) -> tuple[Evidence, ...]:
        return self._evidence()

    def last_output(self) -> float:
        return self._pump.last_output

    def output_offset(self) -> int:
        return self._pump.offset
