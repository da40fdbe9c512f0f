"""Trust a relay.config.py (or another file of a project), so that relay runs what it says.

Shows the file and trusts it as it is now: after any change it has to be trusted again. Without FILE it is the
relay.config.py of this folder or of the project around it. Modules that the file imports are not covered by
this. A wrapped agent may not do it.

  relay trust
  relay trust ./relay.config.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

from relay.errors import ConfigError
from relay.home import Home
from relay.session.guard import person_only
from relay.text import count, visible


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="the file (default: the project's relay.config.py)"
    )


def run(args: argparse.Namespace) -> int:
    from relay.hooks.config_file import FILE, find
    from relay.hooks.trust import Trust

    home = Home.from_env().ensure()
    person_only(
        home,
        "trust",
        "an agent may not trust files. The person can, with `relay trust` in a terminal of their own.",
    )
    path = args.file or find(Path.cwd(), home)
    if path is None:
        raise ConfigError(
            f"there is no {FILE} in this folder or the project around it. Name the file to trust."
        )
    try:
        content = path.read_bytes()  # once: what is shown is what is trusted
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}. Check the path.", path) from None
    lines = visible(content.decode("utf-8", "replace")).splitlines()
    for number, line in enumerate(lines, start=1):
        print(f"{number:4}  {line}")
    value = Trust(home).grant(path, content)
    print(f"Trusted {visible(str(path.resolve()))} ({count(len(lines), 'line')}, sha256 {value[:12]}).")
    code = path.suffix == ".py"
    print(f"It {'runs' if code else 'holds'} from the next `relay wrap` on, until it changes.")
    if code:
        print("Modules that it imports are not covered.")
    return 0
