"""What agents set in the environment of the programs that they run, which other agents must not inherit.

An agent that inherits it takes itself for a part of the outer one: Claude Code 2.1.197 then writes no
transcript, so it has no usage, no cost limit and nothing to resume; Codex and Gemini CLI switch off colours,
pagers and the user's git configuration. tests/real_agents/test_markers.py compares the table with what these
agents do; opencode and pi are according to their sources.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MARKERS = {
    "claude": (
        "CLAUDECODE",
        ("CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_SESSION_ID"),
        (
            *("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_EXECPATH", "CLAUDE_EFFORT", "AI_AGENT", "TRACEPARENT"),
            *("GIT_EDITOR=true", "COREPACK_ENABLE_AUTO_PIN=0", "NoDefaultCurrentDirectoryInExePath"),
            *("TMUX", "TMUX_PANE"),  # of the server that it starts for its own commands
        ),
    ),
    "codex": (
        "CODEX_THREAD_ID",
        ("CODEX_SESSION_ID", "CODEX_TOOL_CALL_ID"),
        (
            *("CODEX_CI", "CODEX_VERSION", "CODEX_MANAGED_BY_NPM", "CODEX_MANAGED_PACKAGE_ROOT"),
            *("CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS", "NO_COLOR=1"),
            *("PAGER=cat", "GIT_PAGER=cat", "GH_PAGER=cat"),
        ),
    ),
    "gemini": (
        "GEMINI_CLI",
        (),
        (
            *("GEMINI_CLI_NO_RELAUNCH", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0"),
            *("GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_NOSYSTEM=1"),
            *("GIT_CONFIG_COUNT", "GIT_ASKPASS=", "SSH_ASKPASS=", "GCM_INTERACTIVE=never"),
            *("GH_PROMPT_DISABLED=1", "DISPLAY=", "DBUS_SESSION_BUS_ADDRESS="),
        ),
    ),
    "opencode": ("OPENCODE", (), ("OPENCODE_PID", "AGENT=1")),
    "pi": ("PI_CODING_AGENT", (), ("AI_AGENT",)),
    "qwen": ("QWEN_CODE", (), ("QWEN_CODE_NO_RELAUNCH", "PAGER=cat", "GIT_PAGER=cat")),
}
"""By kind of agent: the variable that marks its programs; others that nobody else sets; and what is removed
only together with the first, as the user may set it, too: a name, or a name with a value."""


def without_markers(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without what an agent has set for the programs that it runs."""
    left = dict(env)
    for marker, own, more in MARKERS.values():
        for name in own:
            left.pop(name, None)
        if left.pop(marker, None) is not None:
            for each in more:
                name, has_value, value = each.partition("=")
                if not has_value or left.get(name) == value:
                    left.pop(name, None)
    return left
