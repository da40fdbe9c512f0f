"""The running agent, as its shim describes it to the session process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from relay.agents.named_transcripts import Named
from relay.dataclass import dataclass, field
from relay.home import Home
from relay.lifecycle import Order
from relay.session.bridge import bridged
from relay.session.options import Options
from relay.shim.pty import Pty
from relay.terminal.shim_link import ShimLink

_SAME = ("env", "id", "piped", "bridge", "bridge_note", "bridge_dir", "unbridged", "restarts", "kept")
"""The fields that are as the shim sends them."""


@dataclass(frozen=True, slots=True)
class Started:
    """A started agent.

    env:         the agent's environment.
    name, team:  the agent's. socket: where its sessions listen.
    id:          the session's id, shared by all successive sessions of this agent.
    size:        (columns, rows) of the agent's terminal initially.
    piped:       the agent's input comes from a pipe or a file that relay copies into its terminal.
    bridge:      the kind of agent whose own hooks were pointed at the session (relay.agents); "" for none.
    bridge_note: why there is no bridge, or what keeps it from working, for the user; "" if nothing is wrong.
    record:      the transcripts that the agent writes in this run; None: hooks report them, or unknown.
    bridge_dir:  the directory for the bridge's files, removed when the session ends.
    unbridged:   the original values of the variables of `env` that the bridge changed; None: not set.
    restarts:    the number of earlier agents in this run.
    run:         the id of the run's first session: messages to an agent without its own name are for this
                 run.
    kept:        the order that an earlier session had started to carry out: how another agent follows this
                 one, or "stop"; "": none.
    resumes:     this agent continues an earlier conversation.
    command:     what runs, without the bridge's flags: as in `options`, or what resumes a conversation.
    told:        the notices about the configuration shown to the user before the agent started.
    mcp:         the agent has relay's MCP server.
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
    record: Named | None = None
    bridge_dir: str = ""
    unbridged: dict[str, str | None] = field(default_factory=dict)
    restarts: int = 0
    kept: Order | Literal["stop"] = ""
    run: str = ""
    resumes: bool = False
    command: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    mcp: bool = False

    @classmethod
    def of(cls, shim: ShimLink, options: Options | None) -> Started:
        """Return the agent as described by `shim`. options: given by a program, with its own handlers."""
        fields: dict[str, Any] = shim.hello.fields
        if options is None:
            given = fields["options"]
            options = Options(**{**given, "rules": tuple(given["rules"])})
        return cls(
            options=options,
            home=Home.from_env(fields["env"]),
            shim=shim,
            size=tuple(fields["size"]),
            record=Named(**record) if (record := fields.get("record")) else None,
            run=fields.get("run") or fields["id"],  # an older relay's shim sends no "run"
            resumes=bool(fields.get("resumes")),
            command=tuple(fields.get("command") or options.command),
            told=tuple(fields.get("told") or ()),
            mcp=bool(fields.get("mcp")),
            **{name: fields["claim"][name] for name in ("name", "team", "socket")},
            **{name: fields[name] for name in _SAME},
        )

    @property
    def pty(self) -> Pty:
        return self.shim.pty

    @property
    def resumed(self) -> bool:
        """True if this session continues where an earlier session of the same agent stopped."""
        return self.shim.hello.resumed

    def again(
        self, directory: Path, command: tuple[str, ...] | None = None, *, resumes: bool = False
    ) -> dict[str, Any]:
        """Return the order for another agent, with a new session id. Rewrite the bridge's files.

        directory: the agent's. command: what runs; None: the same command.
        resumes: the agent continues a conversation.
        """
        id = os.urandom(8).hex()
        before = {**self.env, **self.unbridged, "RELAY_SESSION": id}
        plain = {name: value for name, value in before.items() if value is not None}
        options = self.options if command is None else self.options.running(list(command))
        argv, env, bridge = bridged(options, plain, self.home, self.bridge_dir, self.socket)
        changed = {name: plain.get(name) for name in env if env[name] != plain.get(name)}
        hello = {"id": id, "env": env, "unbridged": changed, **bridge}
        more = {"restarts": self.restarts + 1, "kept": "", "run": self.run, "resumes": resumes}
        more |= {"command": options.command, "told": []}
        return {"argv": argv, "env": env, "cwd": str(directory), "hello": {**hello, **more}}
