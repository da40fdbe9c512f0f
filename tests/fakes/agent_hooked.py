"""An agent controlled by a test, which calls the hooks in its `--settings` as Claude Code does.

    AGENT_FOLDER=FOLDER agent_hooked.py [--settings FILE | --version]

AGENT_VERSION      the version that it prints; FOLDER/asked gets a line each time
FOLDER/arguments   its own arguments, as JSON
FOLDER/pulled      what to do; removed once read:
                       {"fire": EVENT, "payload": {...}} calls the hooks; a text is passed to them unchanged;
                       "below": true makes a child process call them, as another agent in its shell would
                       {"print": TEXT}, {"exit": CODE}
                       {"write": NAME, "frame": {...}} sends the frame to the session of that name in its list
FOLDER/strings     a datagram socket: on each datagram, the agent does what FOLDER/pulled says
FOLDER/called      one JSON line per call: {"event", "command", "stdout", "stderr", "code"}
AGENT_PROTOCOL     the protocol in its record in the list of sessions; unset: it has no list
FOLDER/wrote       one JSON text per frame: what came back until the connection was closed, or why it failed
"""

# ruff: noqa: E402

import os
import sys

arguments = sys.argv[1:]
if arguments == ["--version"]:  # each session asks, so it takes as little time as possible
    with open(os.environ["AGENT_FOLDER"] + "/asked", "a") as log:
        print("asked", file=log)
    print(os.environ.get("AGENT_VERSION", "2.1.197"), "(Claude Code)")
    raise SystemExit

import json
import re
import socket
import subprocess
from pathlib import Path

folder = Path(os.environ["AGENT_FOLDER"])
settings = {}
if "--settings" in arguments:
    text = arguments[arguments.index("--settings") + 1]
    settings = json.loads(text if text.startswith("{") else Path(text).read_text())


def matches(matcher: str, tool: str) -> bool:
    return matcher in {"", "*"} or bool(re.fullmatch(matcher, tool))


CHILD = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


def fire(event: str, payload: dict[str, object] | str, *, below: bool = False) -> None:
    if isinstance(payload, str):
        data, payload = payload.encode(), {}
    else:
        data = json.dumps({"hook_event_name": event, **payload}).encode()
    for group in settings.get("hooks", {}).get(event, []):
        if not matches(group.get("matcher", ""), str(payload.get("tool_name", ""))):
            continue
        for handler in group["hooks"]:
            command = [handler["command"], *handler["args"]] if "args" in handler else handler["command"]
            argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
            between = [sys.executable, "-c", CHILD] if below else []
            run = subprocess.run([*between, *argv], input=data, capture_output=True)
            with open(folder / "called", "a") as log:
                row = {"event": event, "command": command, "stdout": run.stdout.decode()}
                print(json.dumps({**row, "stderr": run.stderr.decode(), "code": run.returncode}), file=log)


def write(name: str, frame: dict[str, object], times: int) -> str:
    """Write to a session as Claude Code 2.1.332 does, `times` at once."""
    found = [
        each
        for each in map(json.loads, map(Path.read_text, sessions.glob("*.json")))
        if each.get("name") == name
    ]
    try:
        peers = [socket.socket(socket.AF_UNIX) for _ in range(times)]
        for peer in peers:
            peer.settimeout(5)
            peer.connect(found[0]["messagingSocketPath"])
        for peer in peers:
            peer.sendall(json.dumps(frame).encode() + b"\n")
            peer.shutdown(socket.SHUT_WR)
        return "".join(peer.makefile().read() for peer in peers)
    except (OSError, IndexError) as error:
        return f"failed: {error}"


sessions = Path(os.environ.get("CLAUDE_CONFIG_DIR", folder), "sessions")
if "AGENT_PROTOCOL" in os.environ:
    sessions.mkdir(parents=True, exist_ok=True)
    own = {"pid": os.getpid(), "messagingSocketPath": str(folder / "inbox"), "pidDomain": "linux:here"}
    own |= {"peerProtocol": int(os.environ["AGENT_PROTOCOL"]), "version": "2.1.332", "name": folder.name}
    (sessions / f"{os.getpid()}.json").write_text(json.dumps(own))
(folder / "arguments").write_text(json.dumps(arguments))
strings = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
(folder / "strings").unlink(missing_ok=True)  # from an earlier run
strings.bind(str(folder / "strings"))
while True:
    strings.recv(1)
    pulled = json.loads((folder / "pulled").read_text())
    (folder / "pulled").unlink()
    match pulled:
        case {"fire": event, "payload": payload}:
            fire(event, payload, below=pulled.get("below", False))
        case {"write": name, "frame": frame}:
            with open(folder / "wrote", "a") as log:
                print(json.dumps(write(name, frame, pulled.get("times", 1))), file=log)
        case {"print": text}:
            print(text, end="", flush=True)
        case {"exit": code}:
            sys.exit(code)
