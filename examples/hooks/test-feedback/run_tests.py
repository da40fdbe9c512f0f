#!/usr/bin/env python3
"""Run the project's tests when an agent has written a Python file, and tell it which ones fail.

For a project whose tests take seconds: the agent waits for them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SHOWN = 20
PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5  # pytest's exit codes; 2: a file cannot be imported


def writes_python(data):
    """Return whether the tool has written a Python file."""
    wanted = data.get("tool_input") or {}
    names = [wanted.get("file_path") or wanted.get("path") or ""]
    patch = wanted.get("command") or wanted.get("input") or ""  # Codex writes files with apply_patch
    names += re.findall(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", str(patch), re.MULTILINE)
    return any(name.strip().endswith(".py") for name in names)


def check(cwd):
    """Return the answer to the hook; empty if all tests pass."""
    path = f"{cwd}/.venv/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    pytest = shutil.which("pytest", path=path)
    if pytest is None:
        return {"systemMessage": "test-feedback: there is no pytest. Install it: pip install pytest"}
    command = [pytest, "--quiet", "--no-header", "--tb=no", "-rfE", "--color=no"]
    wide = {**os.environ, "COLUMNS": "200"}  # the summary has one line per failure, cut to the width
    try:
        run = subprocess.run(
            command, cwd=cwd, env=wide, capture_output=True, text=True, timeout=55, check=False
        )
    except subprocess.TimeoutExpired:
        return {"systemMessage": "test-feedback: the tests took more than 55 seconds."}
    if run.returncode in (PASSED, NO_TESTS):
        return {}
    found = [line for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if run.returncode not in (FAILED, INTERRUPTED) or not found:
        said = (run.stderr or run.stdout).strip()[-500:]
        return {"systemMessage": f"test-feedback: pytest failed: {said}"}
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    text = "\n".join(["These tests fail now:", *found[:SHOWN], *more])
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": text}}


payload = json.load(sys.stdin)
data = payload.get("data") or payload  # flat rules get {"event": ..., "data": {...}}, groups the data
if writes_python(data) and (answer := check(Path(data.get("cwd") or ".").absolute())):
    print(json.dumps(answer))
