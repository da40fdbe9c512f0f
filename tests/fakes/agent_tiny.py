"""A small agent of a kind of its own, with hooks, a record, usage and conversations that it can resume.

    TINY_HOOK='["COMMAND", "EVENT"]' TINY_RECORD=FILE AGENT_FOLDER=FOLDER
    agent_tiny.py [--continue ID | --version]

It takes each line of its terminal for a prompt, and does what the last command in it says:

    say TEXT    its answer          use TOOL    calls a tool, unless a hook refuses          fail    fails

FOLDER/arguments   its own arguments, a line of JSON for each run
FOLDER/replies     what its hooks printed: a line of JSON for each event, {"event", "reply"}
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

if sys.argv[1:] == ["--version"]:
    print("tiny 1.0")
    raise SystemExit
folder = Path(os.environ["AGENT_FOLDER"])
hook = json.loads(os.environ["TINY_HOOK"])
conversation = sys.argv[2] if sys.argv[1:2] == ["--continue"] else "first"
written = 0


def log(name: str, value: object) -> None:
    with open(folder / name, "a") as file:
        print(json.dumps(value), file=file)


def fire(event: str, **fields: object) -> str:
    payload = {"session_id": conversation, "transcript_path": os.environ["TINY_RECORD"], **fields}
    command = [event if word == "EVENT" else word for word in hook]
    done = subprocess.run(command, input=json.dumps(payload), capture_output=True, text=True)
    log("replies", {"event": event, "reply": done.stdout})
    return done.stdout


def write(kind: str, value: object) -> None:
    global written
    written += 1
    with open(os.environ["TINY_RECORD"], "a") as file:
        print(json.dumps([f"{os.getpid()}.{written}", kind, value]), file=file)


log("arguments", sys.argv[1:])
fire("born", source="resume" if sys.argv[1:] else "startup")
print("tiny> ", end="", flush=True)
for prompt in sys.stdin:
    fire("asked", prompt=prompt.strip())
    write("user", prompt)
    command, text = re.findall(r"(say|use|fail)\b ?([^\[\n]*)", prompt)[-1]
    if command == "fail":
        write("broke", "529 too many of us")
        fire("broke", error="busy")
    else:
        if command == "use" and "refused" not in fire("uses", tool_name=text.strip(), tool_input={}):
            fire("used", tool_name=text.strip(), tool_input={})
        write("said", text.strip().replace("|", "\n") if command == "say" else "used")
        write("tokens", [100, 10])
        fire("done")
    print("\ntiny> ", end="", flush=True)
fire("dies", reason="exit")
