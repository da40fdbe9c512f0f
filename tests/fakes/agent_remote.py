"""A line agent that logs every line it reads, and that a test controls over a socket.

    agent_remote.py FOLDER [--ready TEXT] [--reply PATTERN TEXT]... [--deaf SIGNAL]... [--busy]
                      [--think SECONDS]

FOLDER/received     every line read from the terminal, unchanged
FOLDER/strings   a datagram socket: {"say": TEXT} prints TEXT, {"exit": CODE} ends
--ready TEXT     printed at the start
--reply          print TEXT whenever a line matches PATTERN
--deaf           ignore that signal
--busy           never read the terminal
--think          wait that long before each reply
"""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

folder, *arguments = sys.argv[1:]
replies = []
busy, thinking = False, 0.0
strings = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def out(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]


def handle_requests() -> None:
    while True:
        match json.loads(strings.recv(1 << 20)):
            case {"say": text}:
                out(text)
            case {"exit": code}:
                os._exit(code)


while arguments:
    match arguments:
        case ["--ready", text, *arguments]:
            out(text)
        case ["--reply", pattern, text, *arguments]:
            replies.append((re.compile(pattern), text))
        case ["--deaf", name, *arguments]:
            signal.signal(signal.Signals[name], signal.SIG_IGN)
        case ["--busy", *arguments]:
            busy = True
        case ["--think", seconds, *arguments]:
            thinking = float(seconds)
Path(folder, "strings").unlink(missing_ok=True)  # left if it was restarted
strings.bind(f"{folder}/strings")
threading.Thread(target=handle_requests, daemon=True).start()
with open(f"{folder}/received", "ab", buffering=0) as log:
    if busy:
        threading.Event().wait()
    while line := os.read(0, 1 << 16):
        log.write(line)
        for pattern, text in replies:
            if pattern.search(line.decode("utf-8", "replace")):
                time.sleep(thinking)
                out(text)
