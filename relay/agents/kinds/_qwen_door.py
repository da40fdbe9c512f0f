"""The door of Qwen Code: the inbox of its cross-session protocol, which it documents. Measured with 0.24.4.

$QWEN_HOME/sessions/PID.json names the socket and its token. A frame is a line of JSON; what became of it
comes to a socket of ours, as a receipt that may be lost. Its model reads that another session has sent the
text, and which one. No hook reports that, but the transcript does, before the model is asked.

The session answers a second frame with the same id, and delivers nothing twice. So `settle` sends the frame
again, to that session only: another would not know the id.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

from relay.agents.door import Door, Offer, OfferState, Site, path_of
from relay.agents.kinds.qwen import INBOUND, home_of, inbound
from relay.agents.transcript_lines import dict_of, dicts, object_in, text_of
from relay.text import one_line

RECEIPT_TIMEOUT = 4.0
"""Seconds to wait for a receipt. A busy agent needs two."""

LOOK_EVERY, LOOKS = 0.1, 10
"""Seconds between two looks at the transcript after a second frame, and how many there are."""

REFILL = 2.0
"""Seconds until it takes one more text, after it had too many: it takes 30 at once."""

_STATES = {
    "delivered": OfferState.ACCEPTED,  # queued for the model
    "held": OfferState.ACCEPTED,  # until its user has let it in
    "duplicate": OfferState.ACCEPTED,  # dropped, because it has just taken this text
    "rate-limited": OfferState.BUSY,
    "queue-full": OfferState.BUSY,
    "refused": OfferState.REFUSED,
    "denied": OfferState.REFUSED,
    "expired": OfferState.REFUSED,
    "misaddressed": OfferState.REFUSED,
}
"""What a receipt says about a text: its `status`, or the reason for a drop."""

_NOTE = "offered"  # the file of the run that says which session got the last frame


class QwenDoor(Door):
    limit = 500_000  # it takes lines of 1 MiB, and JSON may need twice the bytes
    delay = 10.0  # a busy one
    hook_proves = False
    hook_stops = False
    foreign = True
    setting = f"agents.{INBOUND}"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._folder = home_of(site.env) / "sessions"
        self._note = Path(site.directory, _NOTE)
        self._address = path_of(site.socket)
        self._free = 0.0  # when it takes another text

    def closed(self) -> str:
        if why := self.held():
            return why
        if not text_of(self._entry().get("ipcPath")):
            return "its session has no inbox (Qwen Code has one from 0.23.0)"
        return ""

    def inbound(self) -> str:
        return inbound(self.site.env)

    def pause(self) -> float:
        return max(self._free - time.monotonic(), 0.0)

    async def offer(self, offer: Offer) -> OfferState:
        session = text_of(self._entry().get("sessionId"))
        note = {"id": offer.id, "session": session, "transcript": self.site.transcript}
        try:
            self._note.write_text(json.dumps(note), encoding="utf-8")
        except OSError:
            return OfferState.REFUSED  # it could not be settled
        return await self._send(offer, session)

    async def settle(self, offer: Offer) -> OfferState:
        note = _read(self._note)
        if note.get("id") != offer.id:
            return OfferState.REFUSED  # no frame was sent
        transcript, session = text_of(note.get("transcript")), text_of(note.get("session"))
        paths = {transcript, self.site.transcript} - {""}
        if any(self._has(path, offer.mark) for path in paths):
            return OfferState.DELIVERED
        state = await self._send(offer, session)
        for _ in range(
            LOOKS if state is OfferState.ACCEPTED else 0
        ):  # a frame may wake a queue that is stuck
            if any(self._has(path, offer.mark) for path in paths):
                return OfferState.DELIVERED
            await asyncio.sleep(LOOK_EVERY)
        return state

    def told(self, line: bytes) -> str:
        if b"[/relay " not in line or (entry := object_in(line)).get("type") != "user":
            return ""
        return "\n".join(
            text_of(part.get("text")) for part in dicts(dict_of(entry.get("message")).get("parts"))
        )

    def _has(self, transcript: str, mark: str) -> bool:
        try:
            with open(transcript, "rb") as file:
                return any(mark in self.told(line) for line in file)
        except OSError:
            return False

    async def _send(self, offer: Offer, session: str) -> OfferState:
        """Send the frame of `offer` to that session, if it is still there; return what its receipt says."""
        entry = self._entry()
        if text_of(entry.get("sessionId")) != session:
            return OfferState.REFUSED  # what its model had not got ended with it, as by /clear
        frames = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in self._frames(offer, entry))
        async with self._receipts() as receipts:
            try:
                _, writer = await asyncio.open_unix_connection(entry["ipcPath"])
            except (KeyError, TypeError, OSError):
                return OfferState.REFUSED
            with suppress(OSError), closing(writer):
                writer.write(frames.encode())
                await writer.drain()
                writer.write_eof()
            with suppress(TimeoutError):
                async with asyncio.timeout(RECEIPT_TIMEOUT):
                    while (state := self._judge(offer, await receipts.get())) is None:
                        pass
                    return state
        return OfferState.UNKNOWN

    def _frames(self, offer: Offer, entry: dict[str, Any]) -> list[dict[str, Any]]:
        frame = {
            "msgV": 1,
            "msgId": offer.id,
            "type": "user",
            "from": self._address,
            "fromName": one_line(offer.sender, 60),
            "toSessionId": entry.get("sessionId"),
            "priority": "next",
            "message": {"role": "user", "content": offer.text},
        }
        return [{"msgV": 1, "type": "auth", "token": entry.get("ipcToken")}, frame]

    def _judge(self, offer: Offer, receipt: dict[str, Any]) -> OfferState | None:
        """Return what a receipt says about `offer`; None if it says nothing."""
        if receipt.get("action") != "delivery_status" or receipt.get("origMsgId") != offer.id:
            return None
        status = text_of(receipt.get("dropReason") or receipt.get("status"))
        if status == "rate-limited":
            self._free = time.monotonic() + REFILL
        return _STATES.get(status)

    @asynccontextmanager
    async def _receipts(self) -> AsyncIterator[asyncio.Queue[dict[str, Any]]]:
        """Listen for receipts, which are put into the queue."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Python 3.11 logs a handler that was cancelled.
            with suppress(OSError, ValueError, asyncio.CancelledError), closing(writer):
                async for line in reader:
                    queue.put_nowait(object_in(line))

        try:
            async with await asyncio.start_unix_server(receive, self._address):
                yield queue
        finally:
            with suppress(OSError):
                os.unlink(self._address)  # noqa: PTH108

    def _entry(self) -> dict[str, Any]:
        """Return what the agent's session says of itself; {} if it says nothing."""
        ours = [entry for file in self._folder.glob("*.json") if self._is_ours(file, entry := _read(file))]
        # The first one: the agent may start others in its shell.
        return min(
            ours,
            key=lambda entry: (entry["sessionId"] != self.site.session_id, entry["startedAt"]),
            default={},
        )

    def _is_ours(self, file: Path, entry: dict[str, Any]) -> bool:
        pid = entry.get("pid")
        return (
            entry.get("schemaVersion") == 1
            and entry.get("kind", "tui") == "tui"
            and isinstance(entry.get("sessionId"), str)
            and isinstance(entry.get("startedAt"), int)
            and isinstance(pid, int)
            and file.stem.partition("-")[0] == str(pid)
            and self.site.owns(pid)
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        return object_in(file.read_bytes())
    except OSError:
        return {}
