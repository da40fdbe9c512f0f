"""Transcripts as Claude Code writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Transcript:
    """A transcript file, to which `say` adds an answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        path.touch()

    def say(self, text: str, **changes: Any) -> None:
        self.count += 1
        entry = {
            "type": "assistant",
            "uuid": f"u{self.count}",
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
            "message": {"model": "m", "content": [{"type": "text", "text": text}]},
        }
        with open(self.path, "a") as file:
            print(json.dumps(entry | changes), file=file)
