"""The set-up of a program that speaks relay's own dialect (docs/NATIVE.md): where to write its words.

The program calls `relay hook decide EVENT`, which finds the session by itself.
"""

from __future__ import annotations

from relay.agents.hook_setup import Prepared, Run, transcript

VARIABLE = "RELAY_TRANSCRIPT"


def prepare(run: Run) -> Prepared:
    """Return the command with RELAY_TRANSCRIPT in its environment: the path of a file that it may create."""
    return Prepared(list(run.command), {**run.env, VARIABLE: transcript(run)}, "relay")
