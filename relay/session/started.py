"""The running agent that the launch hands to the session process."""

from __future__ import annotations

from dataclasses import dataclass

from relay.control.name_claim import Claim
from relay.home import Home
from relay.session.options import Options
from relay.terminal.forward import Forwarder
from relay.terminal.pty import Pty


@dataclass(frozen=True, slots=True)
class Started:
    """A started agent.

    env:         the agent's environment.
    id:          the session's id.
    size:        (columns, rows) of the agent's terminal.
    piped:       the agent's input comes from a pipe or a file that relay copies into its terminal.
    bridge:      the kind of agent whose own hooks were pointed at the session (relay.agents); "" for none.
    bridge_note: why there is no bridge, or what keeps it from working, for the user; "" if nothing is wrong.
    bridge_dir:  the directory of the bridge's files, removed when the session ends; "" without a bridge.
    """

    options: Options
    env: dict[str, str]
    home: Home
    claim: Claim
    id: str
    pty: Pty
    forwarder: Forwarder
    size: tuple[int, int]
    piped: bool
    bridge: str = ""
    bridge_note: str = ""
    bridge_dir: str = ""
