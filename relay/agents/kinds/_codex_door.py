"""The door of Codex: the queue of a conversation, which `codex app-server` fills. Measured with 0.171.0.

A queued text is in $CODEX_HOME/queue_1.sqlite. The conversation takes it within 10 s while it is idle, and
when a turn has ended; after Esc, it waits for the next turn to end. The prompt hook sees it as the user's
prompt. An app-server runs for each request, some 0.1 s; it speaks JSON-RPC, a line for each message.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from relay.agents.door import Door, Offer, OfferState, Site
from relay.agents.kinds.codex import PROGRAM, home_of
from relay.agents.transcript_lines import dict_of, dicts, object_in, text_of

END_TIMEOUT = 2.0
"""Seconds for an app-server to end once nothing is asked."""

LOOK_EVERY = 0.5
"""Seconds between two looks at the conversation on the screen."""

_HOLDER = re.compile(r"^\d+: FLOCK +ADVISORY +WRITE (\d+) \S+:(\d+) ", re.MULTILINE)  # proc_locks(5)
_LINE = 1 << 24  # bytes of an answer: it may have the queue's texts


class CodexDoor(Door):
    limit = 64 * 1024  # 900 KB stall it
    delay = 10.0

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._program = Path(site.directory, PROGRAM)
        self._offered = Path(site.directory, "offered")  # the last offer, and its conversation
        self._locks = home_of(site.env) / "thread-writer-locks"
        self._left = OfferState.UNKNOWN  # what became of the last text when its user left the conversation

    def closed(self) -> str:
        if not _text(self._program):
            return "it has no queue: Codex has one from 0.169.0, unless it is started with --remote"
        if not self._on_screen():
            return "the conversation on its screen has no prompt yet"
        return ""

    async def offer(self, offer: Offer) -> OfferState:
        self._left = OfferState.UNKNOWN
        try:
            self._offered.write_text(f"{offer.id} {self.site.session_id}", encoding="utf-8")
        except OSError:
            return OfferState.REFUSED
        async with self._server(self.site.session_id) as server:
            item = {"type": "text", "text": offer.text}
            answer = await server.ask("add", clientUserMessageId=offer.id, input=[item])
            if "result" in answer:
                return OfferState.ACCEPTED
            return OfferState.UNKNOWN if server.asked and "error" not in answer else OfferState.REFUSED

    async def delivered(self, offer: Offer) -> None:
        """Withdraw `offer` once its user turns to another conversation: the old one would take it unseen."""
        while self._on_screen():  # noqa: ASYNC110 (nothing announces the end of that)
            await asyncio.sleep(LOOK_EVERY)
        self._left = await self.settle(offer)
        await super().delivered(offer)

    async def settle(self, offer: Offer) -> OfferState:
        if self._left is OfferState.REFUSED:
            return self._left
        id, _, thread = _text(self._offered).partition(" ")
        if id != offer.id:
            return OfferState.REFUSED  # it was not asked to add it
        async with self._server(thread) as server:
            cursor = None
            while True:
                page = dict_of((await server.ask("list", cursor=cursor)).get("result"))
                for each in dicts(page.get("data")):
                    if each.get("clientUserMessageId") == offer.id:
                        answer = await server.ask("delete", queuedSubmissionId=each.get("id"))
                        deleted = dict_of(answer.get("result")).get("deleted") is True
                        return OfferState.REFUSED if deleted else OfferState.UNKNOWN
                if not (cursor := page.get("nextCursor")):
                    return OfferState.UNKNOWN

    def told(self, line: bytes) -> str:
        if b"[/relay " not in line:
            return ""
        payload = dict_of(object_in(line).get("payload"))
        item = dict_of(payload.get("item"))
        if payload.get("type") != "item_completed" or item.get("type") != "UserMessage":
            return ""
        return "\n".join(text_of(part.get("text")) for part in dicts(item.get("content")))

    def _on_screen(self) -> bool:
        """Return True if the conversation that its hooks have named is the one on its screen.

        That is the one whose lock it has taken last: hooks report another one only with the next prompt.
        """
        try:
            found = _HOLDER.findall(Path("/proc/locks").read_text(encoding="ascii"))
            holders = {inode: int(pid) for pid, inode in found}
            locks = [(file.stat(), file.stem) for file in self._locks.glob("*-*.lock")]
        except OSError:  # one has just been removed
            return False
        ours = [
            (each.st_mtime_ns, thread)
            for each, thread in locks
            if (pid := holders.get(str(each.st_ino))) and self.site.owns(pid)
        ]
        return max(ours, default=(0, ""))[1] == self.site.session_id != ""

    @asynccontextmanager
    async def _server(self, thread: str) -> AsyncIterator[_Server]:
        """Run an app-server for the conversation `thread`."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(_text(self._program), "app-server"),
                env=self.site.env,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=_LINE,
                start_new_session=True,
            )
        except OSError:
            yield _Server(None, thread)
            return
        try:
            yield _Server(process, thread)
        finally:
            await _end(process)


class _Server:
    """An app-server, asked about the queue of the conversation `thread`; None if it could not be started.

    asked: a request has been sent.
    """

    def __init__(self, process: Process | None, thread: str) -> None:
        self._process = process
        self._thread = thread
        self._requests = 0
        self.asked = False

    async def ask(self, request: str, **fields: Any) -> dict[str, Any]:
        """Return the answer to thread/queue/REQUEST; {} if there is none."""
        if not self._requests:
            info = {"name": "relay", "title": "relay", "version": "1"}
            await self._call("initialize", clientInfo=info, capabilities={"experimentalApi": True})
            await self._send({"method": "initialized"})
        self.asked = self._process is not None
        return await self._call(f"thread/queue/{request}", threadId=self._thread, **fields)

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._requests += 1
        await self._send({"id": self._requests, "method": method, "params": params})
        if self._process is not None and self._process.stdout is not None:
            with suppress(OSError, ValueError):
                async for line in self._process.stdout:
                    message = object_in(line)
                    if message.get("id") == self._requests and "method" not in message:
                        return message
        return {}

    async def _send(self, message: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(f"{json.dumps(message)}\n".encode())
                await self._process.stdin.drain()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


async def _end(process: Process) -> None:
    """End an app-server, with the program that it has started; its work is done."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT):
                await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
