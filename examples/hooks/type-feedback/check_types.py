#!/usr/bin/env python3
"""Tell an agent about type errors in the Python file it has just written: mypy's, else pyright's."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SHOWN = 20
CHECKERS = {
    "mypy": ["--no-error-summary", "--no-color-output", "--follow-imports=silent"],
    "pyright": ["--level=error"],
}


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
    """Return the answer to the hook; empty if there are no errors."""
    path = f"{cwd}/.venv/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    name = next((each for each in CHECKERS if shutil.which(each, path=path)), None)
    if name is None:
        return {
            "systemMessage": "type-feedback: there is no mypy and no pyright. Install one: pip install mypy"
        }
    command = [shutil.which(name, path=path), *CHECKERS[name], *files]
    try:
        run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=55, check=False)
    except subprocess.TimeoutExpired:
        return {"systemMessage": f"type-feedback: {name} took more than 55 seconds."}
    found = [line.strip() for line in run.stdout.splitlines() if " error: " in line]
    if not found:
        failed = run.returncode not in (0, 1)
        said = (run.stderr or run.stdout).strip()[:500]
        return {"systemMessage": f"type-feedback: {name} failed: {said}"} if failed else {}
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    text = "\n".join([f"{name} found in {', '.join(files)}:", *found[:SHOWN], *more])
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": text}}


payload = json.load(sys.stdin)
cwd, files = edited(payload.get("data") or payload)  # flat rules get {"event", "data"}, groups the data
if files and (answer := check(cwd, files)):
    print(json.dumps(answer))
