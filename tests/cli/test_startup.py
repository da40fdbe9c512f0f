"""What a command or a session loads before it does its work: nothing rarely needed, as users wait for it.

tests/cli/loaded/ has a list for each: relay's own modules, and which of the SLOW ones. A module that a
command always needs is added to its list by hand; one that it rarely needs is imported where it needs it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import Relay

LISTS = Path(__file__).with_name("loaded")

SLOW = (
    *("aiomqtt", "argparse", "ast", "asyncio", "bz2", "concurrent.futures", "ctypes", "dataclasses"),
    *("difflib", "email", "enum", "hashlib", "html", "http", "importlib.metadata"),
    *("importlib.resources", "json", "logging", "lzma", "pathlib", "random", "re", "secrets"),
    *("shutil", "signal", "socket", "sqlite3", "ssl", "statistics", "subprocess", "tempfile"),
    *("tomli", "typing", "unicodedata", "uuid", "zipfile"),
)

COMMAND = """
import sys
sys.argv = ["relay", *sys.argv[1:]]
try:
    from relay.__main__ import main
    main()
finally:
    print(*(name for name in sys.modules), file=sys.stderr)
"""

LAUNCH = f"""
import os
def fail():
    raise OSError(11, "there are too many")
os.fork = fail
{COMMAND}
"""

SESSION = """
import sys
import relay.session.session, relay.session.started, relay.terminal.shim_link
print(*(name for name in sys.modules), file=sys.stderr)
"""

LOADING = {
    "version": (COMMAND, "--version"),
    "hook": (COMMAND, "hook", "decide", "Stop"),
    "ps": (COMMAND, "ps"),
    "messages": (COMMAND, "messages"),
    "send": (COMMAND, "send", "you", "hello"),
    "mcp": (COMMAND, "mcp"),  # each call loads the rest in a process of its own
    "launch": (LAUNCH, "wrap", "true"),  # up to the fork of the shim
    "session": (SESSION,),  # what it loads before it is ready
}


@pytest.mark.parametrize("name", LOADING)
def test_a_command_loads_only_what_it_needs(relay: Relay, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", *LOADING[name]],
        env=relay.environment,
        cwd=relay.home,
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    modules = done.stderr.splitlines()[-1].split()
    loaded = {each for each in modules if each.partition(".")[0] == "relay" or each in SLOW}
    listed = set((LISTS / f"{name}.txt").read_text().split())
    assert sorted(loaded - listed) == [], "new on the way of this command"
    assert sorted(each for each in listed - loaded if each.startswith("relay")) == [], "no longer needed"
