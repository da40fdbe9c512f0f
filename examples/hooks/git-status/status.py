#!/usr/bin/env python3
"""Tell an agent at the start of its session what is uncommitted; say nothing outside a repository.

## main...origin/main [ahead 1]          Git status: branch main...origin/main [ahead 1];
 M config.py                       ->    1 modified file (config.py),
?? temp.log                              1 untracked file (temp.log).
"""

import json
import os
import subprocess
import sys

SHOWN = 10
KINDS = {"?": "untracked", "A": "added", "D": "deleted", "R": "renamed", "C": "copied", "U": "unmerged"}


def summary(status):
    """Summarise the output of `git status --short --branch` in one sentence."""
    head, *rows = status.splitlines()
    files = {}
    for row in rows:
        code = row[:2].strip()
        kind = "unmerged" if "U" in code or code in {"AA", "DD"} else KINDS.get(code[:1], "modified")
        files.setdefault(kind, []).append(row[3:])
    branch = head.removeprefix("## ").removeprefix("No commits yet on ")
    parts = [f"branch {branch}{', no commits yet' if 'No commits yet' in head else ''}"]
    for kind, names in files.items():
        more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
        shown = ", ".join(names[:SHOWN] + more)
        parts.append(f"{len(names)} {kind} file{'s' if len(names) > 1 else ''} ({shown})")
    return f"Git status: {parts[0]}; {', '.join(parts[1:]) or 'nothing to commit'}."


def main():
    payload = json.load(sys.stdin)
    data = payload.get("data") or payload  # flat rules get {"event": ..., "data": {...}}, groups the data
    answer = {}
    try:
        status = subprocess.run(
            ["git", "status", "--short", "--branch"],
            cwd=data.get("cwd") or None,
            env={
                **os.environ,
                "GIT_OPTIONAL_LOCKS": "0",
                "LC_ALL": "C.UTF-8",
            },  # never blocks another git process
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=4,
            check=False,
        )
        if status.returncode == 0:
            text = summary(status.stdout)
            answer = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text}}
    except FileNotFoundError:
        answer = {"systemMessage": "git-status: there is no git here, or no such directory."}
    except subprocess.TimeoutExpired:
        answer = {"systemMessage": "git-status: git took more than 4 seconds."}
    if answer:
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
