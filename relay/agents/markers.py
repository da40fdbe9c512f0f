"""What agents set in the environment of the programs that they run, which other agents must not inherit.

An agent that inherits it takes itself for a part of the outer one: Claude Code 2.1.197 then writes no
transcript, so it has no usage, no cost limit and nothing to resume; Codex and Gemini CLI switch off colours,
pagers and the user's git configuration. tests/real_agents/test_markers.py compares AgentKind.markers with
what these agents do; opencode and pi are according to their sources.
"""

from __future__ import annotations

from relay.agents import kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def without_markers(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without what an agent has set for the programs that it runs."""
    left = dict(env)
    given = {name.partition("_")[0] for name in env if not name.startswith("RELAY_")}
    for kind in kinds.names():
        # On the way to an agent's first byte, this imports only the kind of the agent outside, if any.
        own = {kind.upper(), f"{kind.upper()}CODE"}
        if not given.isdisjoint(own) and (marks := kinds.find(kind).markers):
            for name in marks.own:
                left.pop(name, None)
            if left.pop(marks.variable, None) is not None:
                for each in marks.with_it:
                    name, has_value, value = each.partition("=")
                    if not has_value or left.get(name) == value:
                        left.pop(name, None)
    return left
