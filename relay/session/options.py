"""What a person or a program asks of a session: the options of `relay wrap`, however they were given."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.hooks.config import MemoryConfig
    from relay.hooks.registry import Registry


class Options:
    """What `relay wrap` was asked for. Empty strings stand for what was not given."""

    __slots__ = (
        "broker",
        "command",
        "config",
        "detached",
        "memory",
        "name",
        "profile",
        "registry",
        "rules",
        "task",
        "team",
    )

    def __init__(
        self,
        command: list[str],
        *,
        name: str = "",
        team: str = "",
        profile: str = "",
        task: str = "",
        detached: bool = False,
        broker: str = "",
        config: str = "",
        rules: tuple[str, ...] = (),
        registry: Registry | None = None,
        memory: MemoryConfig | None = None,
    ) -> None:
        self.command = command
        self.name = name
        self.team = team
        self.profile = profile
        self.task = task
        self.detached = detached
        self.broker = broker
        self.config = config
        self.rules = rules
        self.registry = registry
        self.memory = memory
