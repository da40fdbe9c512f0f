#!/usr/bin/env python3
"""Note each compaction of a context in compactions.csv of the project: session, time, kind, trigger.

A compaction cannot be prevented (PreCompact only observes), but one can see afterwards what an agent may
have forgotten, and when.
"""

import csv
import json
import os
import sys
import time
from pathlib import Path

payload = json.load(sys.stdin)
data = (
    payload.get("data") or payload
)  # a PreCompact is told flat to every rule; it costs nothing to take both

log = Path(os.environ.get("CLAUDE_PROJECT_DIR") or data.get("cwd") or ".", "compactions.csv")
with open(log, "a", newline="") as file:
    rows = csv.writer(file)
    if file.tell() == 0:
        rows.writerow(["session", "time", "kind", "trigger"])
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    kind = data.get("compaction_type") or "unknown"  # agents tell of the trigger only
    rows.writerow([data.get("session_id", ""), now, kind, data.get("trigger") or "unknown"])
