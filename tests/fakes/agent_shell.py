"""An agent that runs shell lines for a test: agent_shell.py FOLDER

FOLDER/strings   a datagram socket: {"run": LINE} runs it in a shell
FOLDER/done      then the JSON list of its exit code, output, and errors

`relay` in a line comes from a fork server below the agent, so its ancestors are an agent's.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

import forkserver  # noqa: E402

folder = Path(sys.argv[1])
forkserver.install()
define = f'relay() {{ {forkserver.shell_command()} "$@"; }}\n'
strings = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
strings.bind(f"{folder}/strings")
(folder / "received").touch()
while True:
    line = json.loads(strings.recv(1 << 20))["run"]
    done = subprocess.run(["/bin/sh", "-c", define + line], capture_output=True, text=True, check=False)
    (folder / "part").write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    (folder / "part").rename(folder / "done")
