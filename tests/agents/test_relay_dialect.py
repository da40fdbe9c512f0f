"""A shell script that speaks relay's dialect, as documented in docs/PATTERNS.md."""

from __future__ import annotations

import json

from support import Relay, wait_until

PROGRAM = r"""#!/bin/sh
hook() { printf '%s' "$2" | relay hook --agent relay decide "$1" > "$OUT/$1"; }
said() { printf '%s\n' "$1" >> "$RELAY_TRANSCRIPT"; }
hook SessionStart '{"session_id": "1", "source": "startup", "transcript_path": "'"$RELAY_TRANSCRIPT"'"}'
hook UserPromptSubmit '{"session_id": "1", "prompt": "begin", "transcript_path": "'"$RELAY_TRANSCRIPT"'"}'
said '{"type": "said", "id": "1", "text": "Before.\n\n@relay:you exactly\n```\n@relay:you not this\n```"}'
said '{"type": "said", "id": "2", "text": "@relay:you of a helper", "subagent": "h"}'
hook PreToolUse '{"session_id": "1", "tool_name": "Bash", "tool_input": {"command": "rm x"}}'
said '{"type": "said", "id": "3", "text": "@relay:you and last"}'
hook Stop '{"session_id": "1", "last_assistant_message": "@relay:you and last"}'
echo '@relay:you on the screen'
touch "$OUT/done"
exec sleep 600
"""

CONFIG = """
from relay import on
from relay.hooks.result import HookResult

@on("tool_pre")
def guard(event):
    return HookResult("deny", reason="not that")
"""


def test_a_scripts_texts_are_read_exactly_and_its_tool_calls_are_guarded(relay: Relay) -> None:
    folder = relay.home / "out"
    folder.mkdir()
    program = relay.home / "mine"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    native = '[native]\nhooks = "relay"\ntranscript = "relay"\n'
    (patterns / "mine.toml").write_text(f'name = "mine"\ncommands = ["mine"]\n{native}')
    (relay.home / "config" / "relay.config.py").write_text(CONFIG)
    relay("wrap", "-d", "-n", "Ann", "--", program, env={"OUT": str(folder)})
    wait_until((folder / "done").exists, 120)
    wait_until(lambda: len(bodies(relay)) == 2, 60, message=lambda: str(bodies(relay)))
    assert bodies(relay) == ["exactly", "and last"]
    denied = json.loads((folder / "PreToolUse").read_text())
    assert denied["hookSpecificOutput"]["permissionDecisionReason"] == "not that"


def bodies(relay: Relay) -> list[str]:
    rows = json.loads(relay("messages", "--all", "--json", "--to", "you").stdout)
    return [row["body"] for row in sorted(rows, key=lambda row: row["time"])]
