"""What the launch hands to the session process: an agent that runs already, and what it was started with."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.control.name_claim import Claim
    from relay.home import Home
    from relay.session.options import Options
    from relay.terminal.forward import Forwarder
    from relay.terminal.pty import Pty


class Started:
    """A started agent.

    env:   the agent's environment; id: the session's.
    size:  (columns, rows) of the agent's terminal.
    piped: the agent's input comes from a pipe or a file that we copy into its terminal, not from a person.
    bridge: the kind of agent whose own hooks were pointed at the session (relay.agents), "" for none.
    bridge_note: why there is none, or what keeps it from working, for a person; "" where all is said.
    bridge_dir: the files of the bridge, removed at the end of the session (relay.agents.hook_setup).
    """

    __slots__ = (
        "bridge",
        "bridge_dir",
        "bridge_note",
        "claim",
        "env",
        "forwarder",
        "home",
        "id",
        "options",
        "piped",
        "pty",
        "size",
    )

    def __init__(
        self,
        options: Options,
        env: dict[str, str],
        home: Home,
        claim: Claim,
        id: str,
        pty: Pty,
        forwarder: Forwarder,
        *,
        size: tuple[int, int],
        piped: bool,
        bridge: str = "",
        bridge_note: str = "",
        bridge_dir: str = "",
    ) -> None:
        self.options = options
        self.env = env
        self.home = home
        self.claim = claim
        self.id = id
        self.pty = pty
        self.forwarder = forwarder
        self.size = size
        self.piped = piped
        self.bridge = bridge
        self.bridge_note = bridge_note
        self.bridge_dir = bridge_dir
