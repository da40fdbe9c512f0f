"""Reads lines with a real line editor, and says what is in it.

    agent_editor.py EDITOR SOCKET      EDITOR: readline, readline-vi, toolkit, toolkit-vi

Each datagram that comes to SOCKET is answered with the text in the editor. Ctrl-C, Ctrl-D: a new line.
"""

import os
import signal
import socket
import sys
import threading

PROMPT = "> "
EARLIER = ["first words", "/compact now", "two\ttabs"]

editor, path = sys.argv[1:]
asked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
asked.bind(path)


def answer() -> None:
    while True:
        _, who = asked.recvfrom(9)
        asked.sendto(text().encode(), who)


if editor.startswith("readline"):
    import readline

    if editor.endswith("vi"):
        readline.parse_and_bind("set editing-mode vi")
    for line in EARLIER:
        readline.add_history(line)
    text = readline.get_line_buffer

    def read() -> str:
        return input(PROMPT)

else:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import InMemoryHistory

    session = PromptSession(PROMPT, vi_mode=editor.endswith("vi"), history=InMemoryHistory(EARLIER))
    read = session.prompt

    def text() -> str:
        return session.default_buffer.text


threading.Thread(target=answer, daemon=True).start()
reading = False


def interrupt(*_: object) -> None:
    if reading:
        raise KeyboardInterrupt


signal.signal(signal.SIGINT, interrupt)
while True:
    reading = True
    try:
        line = read()
    except (EOFError, KeyboardInterrupt):
        line = ""
    reading = False
    with open(os.environ["AGENT_LOG"], "a") as log:
        log.write(f"{line}\n")
    if not line:
        print()
