"""Runs JavaScript as the plug-ins in agents do, with Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

NODE = shutil.which("node")

needs_node = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")


def printed(program: str) -> list[Any]:
    """Return the JSON that the module `program` prints, one value per line; it must succeed silently."""
    command = [str(NODE), "--input-type=module", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]
