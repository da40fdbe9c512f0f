"""Forwards what is said in #ops to a webhook, such as one of Slack: bridge.py https://hooks.slack.com/services/..."""

import json
import sys
from urllib.request import Request, urlopen

import relay

with relay.connect("bridge", channels=["#ops"]) as me:
    for message in me.messages():
        body = {"text": f"{message.sender} in #{message.channel}: {message.body}"}
        request = Request(sys.argv[1], json.dumps(body).encode(), {"Content-Type": "application/json"})
        # If this raises, the message is kept for the next start.
        urlopen(request, timeout=30).close()
