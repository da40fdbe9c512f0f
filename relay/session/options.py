"""The options of a session, from `relay wrap` or from a program."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relay.hooks.registry import Registry
    from relay.memory.config import MemoryConfig


class Options:
    """The options of a session. An empty string means that the option was not given.

    pipe, terminal: whether redirected descriptors are pipes to the agent, or its terminal nevertheless;
                    neither: pipes if its standard input or output is redirected (launch._redirected).
    supervision:    a relay.supervision.policy.Supervision as JSON.
    """

    def __init__(
        self,
        command: list[str],
        *,
        name: str = "",
        team: str = "",
        profile: str = "",
        task: str = "",
        detached: bool = False,
        pipe: bool = False,
        terminal: bool = False,
        broker: str = "",
        config: str = "",
        rules: tuple[str, ...] = (),
        supervision: dict[str, Any] | None = None,
        worktree: str = "",
        registry: Registry | None = None,
        memory: MemoryConfig | None = None,
    ) -> None:
        self.command = command
        self.name = name
        self.team = team
        self.profile = profile
        self.task = task
        self.detached = detached
        self.pipe = pipe
        self.terminal = terminal
        self.broker = broker
        self.config = config
        self.rules = rules
        self.supervision = supervision
        self.worktree = worktree
        self.registry = registry
        self.memory = memory

    def running(self, command: list[str]) -> Options:
        return Options(**{**vars(self), "command": command})

    def public(self) -> dict[str, Any]:
        """Return the options as JSON, without those that only a program can set: `registry` and `memory`."""
        return {name: value for name, value in vars(self).items() if name not in {"registry", "memory"}}
