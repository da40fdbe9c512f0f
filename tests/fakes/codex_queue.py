#!/usr/bin/env python3
"""`codex app-server` with a queue, in CODEX_HOME/queue.json; each request and its answer is a line of JSON.

CODEX_HOME/mode   what it does:  queues    refuses   answers with an error
                                 dies      ends after it has queued a text, without an answer
                                 hangs     answers nothing, and does not end
"""

import json
import os
import sys
import time
import uuid
from pathlib import Path

assert sys.argv[1:] == ["app-server"]
home = Path(os.environ["CODEX_HOME"])
mode = (home / "mode").read_text()
(home / "pid").write_text(str(os.getpid()))
initialized = False


def save(queue: list[dict]) -> None:
    """Replace the queue at once: tests read it at any time."""
    (home / "queue.new").write_text(json.dumps(queue))
    (home / "queue.new").replace(home / "queue.json")


def answer(request: dict) -> dict:
    params = request["params"]
    if request["method"] == "initialize":
        assert params["capabilities"]["experimentalApi"]
        return {"result": {}}
    assert initialized
    if mode == "refuses":
        return {"error": {"code": -32603, "message": "no rollout found"}}
    queue = json.loads((home / "queue.json").read_text())
    own = [each for each in queue if each["threadId"] == params["threadId"]]
    match request["method"]:
        case "thread/queue/add":
            item = {**params, "id": str(uuid.uuid4())}
            save([*queue, item])
            if mode == "dies":
                raise SystemExit
            return {"result": {"queuedSubmission": item}}
        case "thread/queue/list":
            at = int(params.get("cursor") or 0)
            more = str(at + 2) if own[at + 2 :] else None
            return {"result": {"data": own[at : at + 2], "nextCursor": more}}
        case "thread/queue/delete":
            rest = [each for each in queue if each["id"] != params["queuedSubmissionId"]]
            save(rest)
            return {"result": {"deleted": len(rest) < len(queue)}}
    raise AssertionError(request)


for line in sys.stdin:
    if mode == "hangs":
        time.sleep(600)
    request = json.loads(line)
    if request["method"] == "initialized":
        initialized = True
        continue
    print(json.dumps({"method": "configWarning", "params": {}}))
    print(json.dumps({"id": request["id"], **answer(request)}), flush=True)
