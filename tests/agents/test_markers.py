"""The marks of an outer agent do not reach the agents that are started in its shell."""

from __future__ import annotations

import json

from relay.agents.markers import without_markers
from support import Relay, wait_until

CLAUDE = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_CHILD_SESSION": "1",
    "CLAUDE_CODE_SESSION_ID": "x",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
}


def test_marks_go_and_the_users_own_variables_stay() -> None:
    own = {
        "PATH": "/bin",
        "PAGER": "less",
        "GIT_EDITOR": "vi",
        "NO_COLOR": "1",
        "TMUX": "/tmp/tmux-0/default,1,0",
    }
    for marks, kept in (
        (
            {**CLAUDE, "TMUX": "/tmp/tmux-0/claude-1,1,0", "GIT_EDITOR": "true"},
            own.keys() - {"TMUX", "GIT_EDITOR"},
        ),
        ({"CODEX_THREAD_ID": "x", "PAGER": "cat"}, own.keys() - {"PAGER", "NO_COLOR"}),
        ({"GEMINI_CLI": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}, own.keys()),
        ({"CLAUDE_CODE_CHILD_SESSION": "1"}, own.keys()),
        ({}, own.keys()),
    ):
        assert without_markers({**own, **marks}).keys() == kept, marks


def test_a_wrapped_agent_does_not_inherit_the_marks(relay: Relay) -> None:
    """From `relay wrap` and from a fleet, whatever program it is."""
    env = relay.home / "env"
    run = ["sh", "-c", f"env -0 > {env}; echo up; exec sleep 1000"]

    def inherited() -> set[str]:
        found = wait_until(lambda: env.exists() and env.read_text().endswith("\0") and env.read_text())
        env.unlink()
        return {line.partition("=")[0] for line in found.split("\0")}

    relay("wrap", "-d", "-n", "Ann", *run, env=CLAUDE)
    assert not inherited() & CLAUDE.keys()
    project = relay.home / "project"
    project.mkdir()
    keys = f'run = {json.dumps(run)}\nenv = {{CLAUDE_CODE_ENTRYPOINT = "x"}}\n'
    fleet = f'[fleet]\nteam = "web"\n[agents.Ben]\n{keys}'
    (project / "relay.toml").write_text(fleet)
    relay("trust", "relay.toml", cwd=project)
    relay("up", cwd=project, env=CLAUDE)
    assert inherited() & CLAUDE.keys() == {"CLAUDE_CODE_ENTRYPOINT"}, "that the user set for it"
