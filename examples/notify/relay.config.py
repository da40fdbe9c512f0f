"""Notify people outside relay: `@notify:#engineering Build complete` posts to a webhook, such as Slack's.

The agent's environment has the URL: NOTIFY_WEBHOOK=https://hooks.slack.com/services/...
"""

import json
from urllib.request import Request, urlopen

from relay import pattern


@pattern("notify")
def notify(target, message, ctx):  # a plain function runs in a thread, so it may wait for the network
    url = ctx.env.get("NOTIFY_WEBHOOK")
    if not url:
        return {
            "user_message": "notify: set NOTIFY_WEBHOOK to the webhook's URL.",
            "user_message_level": "error",
        }
    body = json.dumps({"channel": target, "text": f"{ctx.agent_name}: {message}"}).encode()
    with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=10):
        return None
