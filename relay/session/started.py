"""The running agent, as its shim describes it to the session process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relay.home import Home
from relay.session.options import Options
from relay.shim.pty import Pty
from relay.terminal.shim_link import ShimLink


@dataclass(frozen=True, slots=True)
class Started:
    """A started agent.

    env:         the agent's environment.
    name, team:  its own. socket: where its sessions listen.
    id:          the session's id, the same for all that follow one another beside this agent.
    size:        (columns, rows) of the agent's terminal at first.
    piped:       the agent's input comes from a pipe or a file that relay copies into its terminal.
    bridge:      the kind of agent whose own hooks were pointed at the session (relay.agents); "" for none.
    bridge_note: why there is no bridge, or what keeps it from working, for the user; "" if nothing is wrong.
    bridge_dir:  the directory of the bridge's files, removed when the session ends; "" without a bridge.
    """

    options: Options
    env: dict[str, str]
    home: Home
    name: str
    team: str
    socket: str
    id: str
    shim: ShimLink
    size: tuple[int, int]
    piped: bool
    bridge: str = ""
    bridge_note: str = ""
    bridge_dir: str = ""

    @classmethod
    def of(cls, shim: ShimLink, options: Options | None) -> Started:
        """Return what `shim` says. options: those of a program, which has handlers of its own."""
        fields: dict[str, Any] = shim.hello.fields
        claim, (columns, rows) = fields["claim"], fields["size"]
        if options is None:
            given = fields["options"]
            options = Options(**{**given, "rules": tuple(given["rules"])})
        return cls(
            options,
            fields["env"],
            Home.from_env(fields["env"]),
            claim["name"],
            claim["team"],
            claim["socket"],
            fields["id"],
            shim,
            (columns, rows),
            fields["piped"],
            fields["bridge"],
            fields["bridge_note"],
            fields["bridge_dir"],
        )

    @property
    def pty(self) -> Pty:
        """The agent's terminal."""
        return self.shim.pty

    @property
    def resumed(self) -> bool:
        """True if this session goes on where an earlier one of the same agent stopped."""
        return self.shim.hello.generation > 1
