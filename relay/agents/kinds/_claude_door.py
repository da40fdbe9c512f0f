"""The door of Claude Code: the socket where its sessions write to one another. Measured with 2.1.332.

~/.claude/sessions/PID.json names the socket and says what the session does. A frame is a line of JSON;
nothing answers it. The session queues the text, shows `Message from @Alice`, and calls its prompt hook some
0.2 s before its model gets it, in an envelope that says that another session has sent it. It drops the same
text within 30 s, and more than 30 texts at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.agents.door import Door, Offer, OfferState, Site
from relay.agents.kinds.claude import INBOUND, folder_of, inbound
from relay.agents.transcript_lines import dict_of, dicts, object_in, text_of
from relay.text import one_line

BURST, REFILL = 25, 2.0
"""The texts that it takes at once, and the seconds until it takes another one."""

END_TIMEOUT = 0.5
"""Seconds to wait until it has read a frame: it closes the connection then."""

_TAG = re.compile(r"<(?=\s*/?\s*cross-session-message)", re.IGNORECASE)
_BARE = re.compile(r"[^\w .@#-]")


class ClaudeDoor(Door):
    limit = 1 << 19  # it resets the connection beyond 1 MiB, and JSON may need twice the bytes
    foreign = True
    setting = INBOUND

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._folder = folder_of(site.env) / "sessions"
        self._file: Path | None = None
        self._times: list[float] = []  # when it may forget each of the last texts

    def closed(self) -> str:
        if why := self.held():
            return why
        if not self.site.session_id:
            return "its hooks have not named its session yet"
        if not text_of(self._entry().get("messagingSocketPath")):
            return "its session has no messaging socket (Claude Code has one from 2.1.224)"
        return ""

    def inbound(self) -> str:
        return inbound(self.site.env, directory=self.site.directory)

    def idle(self) -> bool | None:
        status = self._entry().get("status")
        return None if status is None else status == "idle"

    def pause(self) -> float:
        now = time.monotonic()
        self._times = [each for each in self._times if each > now]
        return self._times[0] - now if len(self._times) >= BURST else 0.0

    async def offer(self, offer: Offer) -> OfferState:
        entry = self._entry()
        path = text_of(entry.get("messagingSocketPath"))
        if not path:
            return OfferState.REFUSED
        frame = {
            "type": "user",
            "msgV": 1,
            "msg_id": offer.id,
            "uuid": offer.id,
            "session_id": entry.get("sessionId"),
            "priority": "next",
            "message": {"role": "user", "content": _enveloped(offer)},
        }
        token = self._token(path)
        frames = [{"type": "auth", "token": token}, frame] if token else [frame]
        data = "".join(f"{json.dumps(each)}\n" for each in frames).encode()
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError:
            return OfferState.REFUSED
        last = self._times[-1] if self._times else 0.0
        self._times.append(max(last, time.monotonic()) + REFILL)
        try:
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_TIMEOUT):
                    await reader.read()
        except OSError:
            return OfferState.UNKNOWN
        finally:
            writer.close()
        return OfferState.ACCEPTED

    def told(self, line: bytes) -> str:
        if b"[/relay " not in line:
            return ""
        entry = object_in(line)
        match entry.get("type"):
            case "user":
                content = dict_of(entry.get("message")).get("content")
                return text_of(content) or "\n".join(text_of(each.get("text")) for each in dicts(content))
            case "attachment":  # it has joined a turn
                return text_of(dict_of(entry.get("attachment")).get("prompt"))
        return ""

    def _entry(self) -> dict[str, Any]:
        """Return what the agent's session says of itself; {} if it says nothing."""
        if self._file is not None and (entry := _read(self._file)).get("sessionId") == self.site.session_id:
            return entry
        self._file = None
        for file in self._folder.glob("*.json"):
            if self._is_ours(entry := _read(file)):
                self._file = file
                return entry
        return {}

    def _is_ours(self, entry: dict[str, Any]) -> bool:
        pid = entry.get("pid")
        same = entry.get("sessionId") == self.site.session_id
        return same and isinstance(pid, int) and self.site.owns(pid)

    def _token(self, path: str) -> str:
        if self._file is None:
            return ""
        name = f"{self._file.stem}.{hashlib.sha256(path.encode()).hexdigest()}.key"
        return text_of(_read(self._folder / name).get("peerToken"))


def _enveloped(offer: Offer) -> str:
    """Return the text in the envelope with which sessions write to one another: it shows the sender."""
    sender = one_line(_BARE.sub(" ", offer.sender), 60).strip() or "relay"
    text = _TAG.sub("(", offer.text)
    return f'<cross-session-message from-name="{sender}">\n{text}\n</cross-session-message>'


def _read(file: Path) -> dict[str, Any]:
    try:
        return object_in(file.read_bytes())
    except OSError:
        return {}
