#!/usr/bin/env python3
"""Tell an agent what ruff finds in the Python file it has just written, while it is still at work on it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SHOWN = 20


def edited(data):
    """Return the Python files that the tool has written, as paths relative to the project."""
    cwd = Path(data.get("cwd") or ".").absolute()
    wanted = data.get("tool_input") or {}
    names = [wanted.get("file_path") or wanted.get("path") or ""]
    patch = wanted.get("command") or wanted.get("input") or ""  # Codex writes files with apply_patch
    names += re.findall(r"^\*\*\* (?:Add File|Update File|Move to): (.+)$", str(patch), re.MULTILINE)
    paths = [cwd / name.strip() for name in names if name.strip().endswith(".py")]
    return cwd, [os.path.relpath(path, cwd) for path in paths if path.is_file()]


def check(cwd, files):
    """Return the answer to the hook; empty if ruff finds nothing."""
    path = f"{cwd}/.venv/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    ruff = shutil.which("ruff", path=path)
    if ruff is None:
        return {"systemMessage": "linter-feedback: there is no ruff. Install it: pip install ruff"}
    command = [ruff, "check", "--quiet", "--no-cache", "--force-exclude", "--output-format=concise", *files]
    try:
        run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=7, check=False)
    except subprocess.TimeoutExpired:
        return {"systemMessage": "linter-feedback: ruff took more than 7 seconds."}
    if run.returncode not in (0, 1):
        return {"systemMessage": f"linter-feedback: ruff failed: {run.stderr.strip()[:500]}"}
    found = run.stdout.splitlines()
    if not found:
        return {}
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    text = "\n".join([f"ruff found in {', '.join(files)}:", *found[:SHOWN], *more])
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": text}}


payload = json.load(sys.stdin)
cwd, files = edited(payload.get("data") or payload)  # flat rules get {"event", "data"}, groups the data
if files and (answer := check(cwd, files)):
    print(json.dumps(answer))
