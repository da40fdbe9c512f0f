#!/usr/bin/env python3
"""Ask an agent for an answer if its turn ended without a word.

A reasoning model sometimes stops after its last thought. One question brings the answer; if it happens twice
in a row, that is for the user, so nothing is forced once the cap on continuations is reached (at_max_iter).
"""

import json
import sys

payload = json.load(sys.stdin)
data = payload.get("data") or payload  # every rule gets Stop data flat; accepting both shapes costs nothing
said = data.get("last_assistant_message", "unknown")  # unreported counts as not empty

if not (said or "").strip() and not data.get("at_max_iter"):
    follow_up = "Your answer was empty. Give the final answer now, from what you have found out already."
    print(json.dumps({"force_continue": True, "follow_up_message": follow_up}))
