"""What a command loads before it does its work: nothing that it rarely needs, as users wait for it.

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
    *("asyncio", "bz2", "concurrent.futures", "difflib", "email", "hashlib", "http", "importlib.metadata"),
    *(
        "importlib.resources",
        "logging",
        "lzma",
        "random",
        "secrets",
        "shutil",
        "sqlite3",
        "ssl",
        "statistics",
    ),
    *("subprocess", "tempfile", "tomli", "unicodedata", "uuid", "zipfile"),
)

PROGRAM = """
import sys
sys.argv = ["relay", *sys.argv[1:]]
try:
    from relay.__main__ import main
    main()
finally:
    print(*(name for name in sys.modules), file=sys.stderr)
"""

COMMANDS = {
    "version": ("--version",),
    "hook": ("hook", "decide", "Stop"),
    "ps": ("ps",),
    "messages": ("messages",),
    "send": ("send", "you", "hello"),
    "launch": ("wrap",),  # up to its error: there is no command to wrap
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_loads_only_what_it_needs(relay: Relay, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *COMMANDS[name]],
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
