"""The inbox of a Qwen Code session, as its cross-session protocol describes it.

    QWEN_HOME=HOME qwen_inbox.py FOLDER

FOLDER/session     the id of its session
FOLDER/transcript  a line for each text that its model gets
FOLDER/mode        what it does with the next texts:
                       gives     gives them to its model     holds      queues them, and forgets them
                       mute      gives, without a receipt    slow       drops them: too many
                       refuses   says that it refuses them   resets     closes the connection unread
                       confuses  sends receipts of others, and nonsense
FOLDER/frames      a line for each frame that it has read
"""

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

folder = Path(sys.argv[1])
sessions = Path(os.environ["QWEN_HOME"]) / "sessions"
sessions.mkdir(parents=True, exist_ok=True)
address = str(folder / f"{os.getpid()}.sock")
settled: set[str] = set()
last = ""


def word(name: str) -> str:
    return (folder / name).read_text()


def reply(frame: dict, *receipts: dict) -> None:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
        peer.connect(frame["from"])
        for receipt in receipts:
            fields = {"type": "control", "action": "delivery_status", "origMsgId": frame["msgId"], **receipt}
            peer.sendall((json.dumps(fields) + "\n").encode())


def give(text: str) -> None:
    parts = [{"text": f'<cross_session_message name="relay">\n{text}\n</cross_session_message>'}]
    with open(folder / "transcript", "a") as log:
        print(json.dumps({"type": "user", "message": {"role": "user", "parts": parts}}), file=log)


def take(frame: dict) -> None:
    """Take a frame, and answer it, as one session: a second one with the same id is not delivered."""
    global last
    mode, id, text = word("mode"), frame["msgId"], frame["message"]["content"]
    with open(folder / "frames", "a") as log:
        print(json.dumps(frame), file=log)
    if text == last:
        return reply(frame, {"status": "dropped", "dropReason": "duplicate"})
    if frame["toSessionId"] != word("session"):
        return reply(frame, {"status": "misaddressed"})
    if mode == "refuses":
        return reply(frame, {"status": "refused"})
    if mode == "slow":
        return reply(frame, {"status": "dropped", "dropReason": "rate-limited"})
    last = text
    if id not in settled and mode != "holds":
        give(text)
    settled.add(id)
    if mode == "confuses":
        reply(frame, {"origMsgId": "another", "status": "refused"}, {"status": "not yet known"})
    if mode != "mute":
        reply(frame, {"status": "delivered"})
    return None


with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(address)
    listener.listen()
    record = {
        "schemaVersion": 1,
        "pid": os.getpid(),
        "sessionId": word("session"),
        "startedAt": 1,
        "kind": "tui",
        "ipcPath": address,
        "ipcToken": "secret",
    }
    (sessions / f"{os.getpid()}.json").write_text(json.dumps(record))
    print("listening", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError, StopIteration):
            if word("mode") == "resets":
                continue
            lines = connection.makefile("rb")
            if json.loads(next(lines)) == {"msgV": 1, "type": "auth", "token": "secret"}:
                take(json.loads(next(lines)))
