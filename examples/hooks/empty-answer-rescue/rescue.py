#!/usr/bin/env python3
"""Have an agent whose turn ended without a word answer after all.

A reasoning model stops now and then after its last thought.  One question brings the answer; a second time
in a row is for the user, so nothing is forced once the cap on continuations is reached (at_max_iter).
"""

import json
import sys

payload = json.load(sys.stdin)
data = payload.get("data") or payload  # a Stop is told flat to every rule; it costs nothing to take both
said = data.get("last_assistant_message", "unknown")  # where the agent does not tell, nothing is missing

if not (said or "").strip() and not data.get("at_max_iter"):
    follow_up = "Your answer was empty. Give the final answer now, from what you have found out already."
    print(json.dumps({"force_continue": True, "follow_up_message": follow_up}))
