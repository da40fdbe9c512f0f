"""A small Claude Code with an inbox: what its socket takes goes to its model, between turns.

    AGENT_FOLDER=FOLDER agent_inbox.py [--settings FILE | --version]

FOLDER/given    one JSON text a line: what its model has got, in order; FOLDER/refused: what its hook refused
FOLDER/contexts the same for contexts from that hook
FOLDER/keys     the bytes that were typed
FOLDER/inbox    what the inbox does with the next text, if not "gives":
                    late    queues it until the file is gone          drops    takes it, and forgets it
                    resets  resets the connection after taking it     babbles  takes it, and answers nonsense
                    hangs   does not read it, and forgets it          closed   is closed
FOLDER/silent   while it exists, it calls no prompt hook (but writes its transcript)
FOLDER/works    while it exists, a turn does not end
FOLDER/overlay  while it exists, an overlay is open: the texts in its inbox wait
FOLDER/menu     the same, but it draws the overlay and does not report it
"""

# ruff: noqa: E402

import os
import sys

arguments = sys.argv[1:]
if arguments == ["--version"]:
    print(os.environ.get("AGENT_VERSION", "2.1.332"), "(Claude Code)")
    raise SystemExit

import json
import queue
import signal
import socket
import struct
import subprocess
import threading
import time
import tty
import uuid
from contextlib import suppress
from pathlib import Path

folder = Path(os.environ["AGENT_FOLDER"])
settings = json.loads(Path(arguments[arguments.index("--settings") + 1]).read_text())
sessions = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "sessions"
transcript = folder / f"transcript {os.getpid()}.jsonl"
session = str(uuid.uuid4())
address = f"{os.environ['AGENT_SOCKETS']}/{os.getpid()}.sock"
prompts: "queue.Queue[str]" = queue.Queue()
draft = ""
drawing = threading.Lock()


def flag(name: str) -> bool:
    return (folder / name).exists()


def wait_for(name: str) -> None:
    while flag(name):
        time.sleep(0.03)


def inbox() -> str:
    with suppress(FileNotFoundError):
        return (folder / "inbox").read_text()
    return "gives"


def note(name: str, text: str) -> None:
    with open(folder / name, "a") as log:
        print(json.dumps(text), file=log)


def report(status: str) -> None:
    status = "waiting" if status == "idle" and flag("overlay") else status
    fields = {"pid": os.getpid(), "sessionId": session, "messagingSocketPath": address, "status": status}
    new = sessions / f"{os.getpid()}.new"
    new.write_text(json.dumps(fields))
    new.rename(sessions / f"{os.getpid()}.json")


def draw(footer: str = "footer") -> None:
    with drawing:
        rule, shown = "─" * 80, draft[-60:].replace("\n", " ")
        sys.stdout.write(f"\x1b[H\x1b[2JClaude Code\r\n\r\n{rule}\r\n❯ {shown}\r\n{rule}\r\n  {footer}")
        sys.stdout.write(f"\x1b[4;{3 + len(shown)}H")
        sys.stdout.flush()


def call(event: str, **fields: object) -> dict:
    common = {"hook_event_name": event, "session_id": session, "transcript_path": str(transcript)}
    data = json.dumps({**common, **fields}).encode()
    answer: dict = {}
    for group in settings["hooks"].get(event, []):
        for handler in group["hooks"]:
            command = [handler["command"], *handler["args"]]
            printed = subprocess.run(command, input=data, capture_output=True).stdout
            answer |= json.loads(printed) if printed else {}
    return answer


def turn(prompt: str) -> None:
    report("busy")
    reply = {} if flag("silent") else call("UserPromptSubmit", prompt=prompt)
    if reply.get("decision") == "block":
        note("refused", prompt)
        report("idle")
        return
    if context := reply.get("hookSpecificOutput", {}).get("additionalContext"):
        note("contexts", context)
    record({"type": "user", "message": {"role": "user", "content": prompt}})
    note("given", prompt)
    while True:
        wait_for("works")
        more = call("Stop").get("hookSpecificOutput", {}).get("additionalContext")
        if not more:
            break
        note("given", more)
    report("idle")


def record(entry: dict) -> None:
    with open(transcript, "a") as log:
        print(json.dumps(entry), file=log)


def turns() -> None:
    call("SessionStart", source="startup")
    report("idle")
    while True:
        prompt = prompts.get()
        turn(prompt)


def overlays() -> None:
    while True:
        if flag("overlay"):
            report("idle")
            wait_for("overlay")
            report("idle")
        if flag("menu"):
            draw("Esc to cancel")
            wait_for("menu")
            draw()
        time.sleep(0.1)


def take(text: str) -> None:
    record({"type": "queue-operation", "operation": "enqueue", "content": text})
    wait_for("overlay")
    wait_for("menu")
    prompts.put(text)


def serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, inbox()), daemon=True).start()


def answer(connection: socket.socket, how: str) -> None:
    if how == "hangs":
        wait_for("inbox")
        connection.close()
        return
    with connection.makefile() as lines:
        for line in lines:
            frame = json.loads(line)
            if frame["type"] != "user" or frame["session_id"] != session or how == "drops":
                continue
            if how == "late":
                wait_for("inbox")
            if how == "babbles":
                connection.sendall(b'\x00{"type": "receipt", "state": "delivered"}\n[]\n')
            take(frame["message"]["content"])
            if how == "resets":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                break
    connection.close()


def watch() -> None:
    """Close the inbox while the file says so."""
    there, away = Path(address), Path(f"{address}.closed")
    while True:
        if inbox() == "closed" and there.exists():
            there.rename(away)
        if inbox() != "closed" and away.exists():
            away.rename(there)
        time.sleep(0.1)


signal.signal(signal.SIGHUP, signal.SIG_DFL)
tty.setraw(0)
sys.stdout.write("\x1b[?2004h")
draw()
sessions.mkdir(parents=True, exist_ok=True)
inlet = socket.socket(socket.AF_UNIX)
inlet.bind(address)
inlet.listen()
report("idle")
for work in (turns, overlays, lambda: serve(inlet), watch):
    threading.Thread(target=work, daemon=True).start()
held = b""
pasting = False
while data := os.read(0, 65536):
    with open(folder / "keys", "ab") as keys:
        keys.write(data)
    held += data
    try:
        text = held.decode()
    except UnicodeDecodeError:
        continue
    held = b""
    text = text.replace("\x1b[200~", "\0").replace("\x1b[201~", "\1")
    for character in text:
        if character in "\0\1":
            pasting = character == "\0"
        elif character == "\r" and not pasting:
            prompts.put(draft)
            draft = ""
        elif character == "\x15":
            draft = ""
        else:
            draft += character
    draw()
