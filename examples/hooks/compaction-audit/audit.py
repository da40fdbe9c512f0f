#!/usr/bin/env python3
"""Append each compaction of a context to the project's compactions.csv: session, time, kind, trigger.

A compaction cannot be prevented (PreCompact only observes), but the file shows what an agent may have
forgotten, and when.
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
)  # every rule gets PreCompact data flat; accepting both shapes costs nothing

log = Path(os.environ.get("CLAUDE_PROJECT_DIR") or data.get("cwd") or ".", "compactions.csv")
with open(log, "a", newline="") as file:
    rows = csv.writer(file)
    if file.tell() == 0:
        rows.writerow(["session", "time", "kind", "trigger"])
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    kind = data.get("compaction_type") or "unknown"  # agents report only the trigger
    rows.writerow([data.get("session_id", ""), now, kind, data.get("trigger") or "unknown"])
