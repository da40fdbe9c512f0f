"""The names that agents have for the same tool: Claude Code's `Bash` is `run_shell_command` elsewhere.

The others are AgentKind.tools; a tool that no kind names has only one name.
"""

from __future__ import annotations

from functools import cache

from relay.agents import kinds
from relay.names import suggest

NAMES = (
    *("Bash", "Read", "Edit", "Write", "NotebookEdit", "Grep", "Glob", "LS", "WebFetch", "WebSearch"),
    *("TodoWrite", "Agent", "Skill", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode"),
)
"""The tools by their names in rules, which are Claude Code's."""

EARLIER = {"Agent": ("Task",)}
"""Earlier names of the same."""

_RULE_NAMES = frozenset(NAMES).union(*EARLIER.values())


class _Tools:
    """Every name of every tool. It imports all kinds of agents."""

    def __init__(self) -> None:
        self.aliases: dict[str, tuple[str, ...]] = {}
        self.rule_names: dict[str, str] = {}
        agents = [kinds.find(name) for name in kinds.names()]
        for own in NAMES:
            others = [each for agent in agents for each in agent.tools.get(own, ())]
            row = dict.fromkeys((own, *EARLIER.get(own, ()), *others))
            for name in row:
                self.aliases[name] = tuple(dict.fromkeys((name, *self.aliases.get(name, ()), *row)))
                self.rule_names.setdefault(name, own)
        self.spellings = {name.casefold(): name for name in reversed(self.aliases)}


@cache
def _tools() -> _Tools:
    return _Tools()


def aliases(tool: str) -> tuple[str, ...]:
    """Return every name of the tool, `tool` first."""
    return _tools().aliases.get(tool, (tool,))


def claude_names(tool: str) -> tuple[str, ...]:
    """Return Claude Code's names for the tool: two for `Agent`; `tool` itself if it is unknown."""
    return tuple(name for name in aliases(tool) if name in _RULE_NAMES) or (tool,)


def known() -> tuple[str, ...]:
    """Return every name of every tool with a row."""
    return tuple(_tools().aliases)


def close_to(tool: str) -> str | None:
    """Return the known name that `tool` is probably a typo of: "Bash" for "bash" or "Bahs"; else None."""
    if tool in _tools().aliases:
        return None
    return _tools().spellings.get(tool.casefold()) or suggest(tool, sorted(_RULE_NAMES), 0.85)


def claude_name(tool: str) -> str:
    """Return Claude Code's name for the tool: "Bash" for "run_shell_command"; `tool` itself if unknown."""
    return tool if tool in _RULE_NAMES else _tools().rule_names.get(tool, tool)
