"""systemctl and loginctl as relay calls them, acting on the files in $SYSTEMD; they start nothing.

$SYSTEMD/calls       a line for each call
$SYSTEMD/absent      there is no manager
$SYSTEMD/refuses     the verb that fails
$SYSTEMD/properties  the output of `show UNIT`, besides UnitFileState
$SYSTEMD/linger      the output of loginctl; without it, loginctl does not know the user
"""

import os
import sys
from pathlib import Path

state = Path(os.environ["SYSTEMD"])
units = Path(os.environ["XDG_CONFIG_HOME"], "systemd", "user")
program, arguments = Path(sys.argv[0]).name, sys.argv[1:]
with (state / "calls").open("a") as calls:
    print(program, *arguments, file=calls)


def setting(name: str) -> str:
    path = state / name
    return path.read_text().strip() if path.exists() else ""


if program == "loginctl":
    if not (linger := setting("linger")):
        sys.exit(f"Failed to get user: User ID {os.getuid()} is not logged in or lingering")
    print(linger)
    sys.exit()
own, verb, *rest = arguments
if own != "--user":
    sys.exit("not the user's own manager")
if (state / "absent").exists():
    sys.exit("Failed to connect to bus: No medium found")
if verb == setting("refuses"):
    sys.exit(f"Failed to {verb} unit: it was told to")
names = [word for word in rest if not word.startswith("-")]
for name in names:
    wanted = units / "default.target.wants" / name
    if verb == "enable":
        if not (units / name).exists():
            sys.exit(f"Failed to enable unit: Unit file {name} does not exist.")
        wanted.parent.mkdir(exist_ok=True)
        wanted.unlink(missing_ok=True)
        wanted.symlink_to(units / name)
    elif verb == "disable":
        wanted.unlink(missing_ok=True)
    elif verb == "show":
        print("UnitFileState=" + ("enabled" if wanted.exists() else "disabled"))
        print(setting("properties"))
