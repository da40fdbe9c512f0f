"""An agent with hooks: times calls of the hook that decides on its tool calls, and of a bare interpreter.

hooked.py RESULTS ROUNDS RELAY... --settings FILE

FILE is what `relay wrap` gives to Claude Code; RELAY is the command of the public `relay hook`. The seconds
of each call go to RESULTS as JSON: {"client": [...], "bare": [...], "relay": [...]}.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

results, rounds, *relay = sys.argv[1:-2]
with open(sys.argv[-1]) as file:
    handler = json.load(file)["hooks"]["PreToolUse"][-1]["hooks"][0]
payload = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
commands = {
    "client": [handler["command"], *handler["args"]],
    "bare": [sys.executable, "-S", "-c", "pass"],
    "relay": [*relay, "hook", "decide", "PreToolUse"],
}
while not Path(os.environ["RELAY_SOCKET"]).exists():
    time.sleep(0.01)
seconds: dict[str, list[float]] = {name: [] for name in commands}
for _ in range(int(rounds)):
    for name, command in commands.items():
        began = time.monotonic()
        subprocess.run(command, input=json.dumps(payload).encode(), stdout=subprocess.PIPE, check=True)
        seconds[name].append(time.monotonic() - began)
part = Path(results + ".part")
part.write_text(json.dumps(seconds))
part.rename(results)
time.sleep(60)
