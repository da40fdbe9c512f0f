"""A line agent that logs every line it reads, and that a test controls over a socket.

    agent_remote.py FOLDER [--ready TEXT] [--reply PATTERN TEXT]... [--deaf SIGNAL]... [--busy]
                      [--think SECONDS] [--mcp COMMAND...]

FOLDER/received     every line read from the terminal, unchanged
FOLDER/strings   a datagram socket: {"say": TEXT} prints TEXT, {"exit": CODE} ends
--ready TEXT     printed at the start
--reply          print TEXT whenever a line matches PATTERN
--deaf           ignore that signal
--busy           never read the terminal
--think          wait that long before each reply
--mcp            run the COMMAND for each connection to the socket FOLDER/mcp, which is its standard input and
                 output; an MCP server, as the agent would start it

Tests start it a thousand times, so it imports what is built in, and the rest when it needs it.
"""

import _socket
import _thread
import os
import sys
import time

folder, *arguments = sys.argv[1:]
replies = []
busy, thinking = False, 0.0
strings = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)


def out(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]


def handle_requests() -> None:
    while True:
        request = strings.recv(1 << 20)
        import json

        match json.loads(request):
            case {"say": text}:
                out(text)
            case {"exit": code}:
                os._exit(code)


def serve(command: list[str]) -> None:
    import subprocess

    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    listener.bind(f"{folder}/mcp")
    listener.listen()
    while True:
        fd = listener._accept()[0]
        subprocess.Popen(command, stdin=fd, stdout=fd)
        os.close(fd)


while arguments:
    match arguments:
        case ["--ready", text, *arguments]:
            out(text)
        case ["--reply", pattern, text, *arguments]:
            import re

            replies.append((re.compile(pattern), text))
        case ["--deaf", name, *arguments]:
            import signal

            signal.signal(signal.Signals[name], signal.SIG_IGN)
        case ["--busy", *arguments]:
            busy = True
        case ["--think", seconds, *arguments]:
            thinking = float(seconds)
        case ["--mcp", *command]:
            _thread.start_new_thread(serve, (command,))
            arguments = []
if os.path.exists(f"{folder}/strings"):  # noqa: PTH110
    os.unlink(f"{folder}/strings")  # noqa: PTH108 - left if it was restarted
strings.bind(f"{folder}/strings")
_thread.start_new_thread(handle_requests, ())
with open(f"{folder}/received", "ab", buffering=0) as log:
    if busy:
        import signal

        signal.pause()
    while line := os.read(0, 1 << 16):
        log.write(line)
        for expected, text in replies:
            if expected.search(line.decode("utf-8", "replace")):
                time.sleep(thinking)
                out(text)
