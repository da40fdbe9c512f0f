"""The API of the pages: what the commands print as JSON, and what the commands do."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from relay.control import board
from relay.control.commands import CommandEnd, Commands
from relay.control.sessions import find, find_claim
from relay.errors import (
    InvalidName,
    LedgerError,
    NoSuchMessage,
    NoSuchSession,
    NotAllowed,
    RecordingError,
    RelayError,
    SessionUnresponsive,
    UnknownRecipient,
    UsageError,
)
from relay.home import Home
from relay.message import State
from relay.messaging.ledger import Ledger
from relay.names import key
from relay.recording import store
from relay.recording.asciicast import Cast
from relay.replay import timeline
from relay.replay.export import export
from relay.web.access import OPENED, PRINTED, Access, BrowserSession, TooMany
from relay.web.events import Watch
from relay.web.gate import MAX_BODY, PEER, SESSION, Refused, json_response
from relay.web.peers import Whose
from relay.web.terminals import PageTerminals

BODY_SECONDS = 10.0
"""Seconds that a request's body may take."""

LATEST, MOST = 200, 1000
"""Messages and lines of a page, by default and at most."""

PIECE = 64 << 10
"""Bytes of a recording that are sent at a time."""

STATIC = Path(__file__).parent / "static"

_STATUS: tuple[tuple[type[RelayError], int], ...] = (
    (TooMany, 429),
    (NotAllowed, 403),
    (NoSuchSession, 404),
    (NoSuchMessage, 404),
    (RecordingError, 404),
    (UnknownRecipient, 404),
    (UsageError, 400),
    (InvalidName, 400),
    (SessionUnresponsive, 504),
    (LedgerError, 500),
    (RelayError, 409),
)


class Api:
    """The routes."""

    def __init__(
        self, home: Home, access: Access, commands: Commands, watch: Watch, terminals: PageTerminals
    ) -> None:
        self._home = home
        self._access = access
        self._commands = commands
        self._watch = watch
        self._terminals = terminals
        self._looks: dict[str | None, asyncio.Task[board.Board]] = {}

    def app(self) -> Starlette:
        agent = "/api/agents/{name}"
        return Starlette(
            routes=[
                Route("/api/session", self.log_in, methods=["POST"]),
                Route("/api/session", self.log_out, methods=["DELETE"]),
                Route("/api/events", self.events),
                Route("/api/agents", self.agents),
                Route(f"{agent}/question", self.question),
                Route(f"{agent}/answer", self.answer, methods=["POST"]),
                self._runs(f"{agent}/stop", "stop", "--json"),
                self._runs(f"{agent}/restart", "restart", "--json"),
                self._runs(f"{agent}/hold", "hold", "--json"),
                Route(f"{agent}/release", self.release, methods=["POST"]),
                Route(f"{agent}/control", self.control, methods=["POST"]),
                WebSocketRoute(f"{agent}/terminal", self._terminals.serve),
                Route(f"{agent}/logs", self.logs),
                Route("/api/messages", self.messages),
                Route("/api/messages", self.send, methods=["POST"]),
                Route("/api/inbox", self.inbox),
                self._runs("/api/inbox/{id}/read", "inbox", "--json", "show", in_team=False),
                self._runs("/api/inbox/{id}/done", "inbox", "--json", "done", in_team=False),
                Route("/api/usage", self.usage),
                Route("/api/recordings", self.recordings),
                Route("/api/recordings/{id}", self.recording),
                Route("/api/fleet", self.fleet),
                self._runs("/api/fleet/{name}/up", "up", "--json", in_team=False),
                self._runs("/api/fleet/{name}/down", "down", "--json", in_team=False),
                Mount("/api", _nothing),
                Mount("/", StaticFiles(directory=STATIC, html=True)),
            ],
            exception_handlers={RelayError: _mistake, Refused: _refused, Exception: _defect},
        )

    # Sessions of browsers.

    async def log_in(self, request: Request) -> Response:
        token = _text(await _body(request), "token")
        known = request.scope["state"][PEER].whose is Whose.USER
        cookie = self._access.open(token, {PRINTED, OPENED} if known else {PRINTED})
        response = Response(status_code=204)
        response.set_cookie(self._access.cookie, cookie, path="/", httponly=True, samesite="strict")
        return response

    async def log_out(self, request: Request) -> Response:
        self._access.close(_session(request))
        response = Response(status_code=204)
        response.delete_cookie(self._access.cookie, path="/", httponly=True, samesite="strict")
        return response

    async def events(self, request: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            with self._watch.page() as page, _session(request).closes(page.close):
                async for event in page.events():
                    yield event

        return StreamingResponse(stream(), media_type="text/event-stream")

    # What is shown.

    async def agents(self, request: Request) -> Response:
        found = await self._look(_team(request))
        return json_response([each.public() for each in found.entries])

    async def inbox(self, request: Request) -> Response:
        found = await self._look(_team(request))
        return json_response([each.public() for each in found.inbox])

    async def messages(self, request: Request) -> Response:
        query = request.query_params
        if query.get("state", "held") not in [*State]:
            raise UsageError("there is no such state of messages.")
        about = [each for each in (query.get("with"),) if each]
        states = [State(each) for each in (query.get("state"),) if each]
        limit = _number(query.get("limit"), LATEST)

        def rows() -> list[Any]:
            if not self._home.ledger.exists():
                return []
            with Ledger(self._home.ledger) as ledger:
                return ledger.messages(team=_team(request), about=about, states=states, limit=limit)

        return json_response(
            [{**each.message.public(), "team": each.team} for each in await asyncio.to_thread(rows)]
        )

    async def question(self, request: Request) -> Response:
        name, team = request.path_params["name"], _team(request)
        return json_response(
            await asyncio.to_thread(lambda: find(self._home, name, team).ask({"op": "question"}))
        )

    async def logs(self, request: Request) -> Response:
        lines = _number(request.query_params.get("limit"), LATEST)
        outcome = await self._commands.run(
            *("logs", "--json", f"-n{lines}", *_in_team(request), "--", request.path_params["name"])
        )
        return json_response([json.loads(line) for line in outcome.out.splitlines()])

    async def usage(self, request: Request) -> Response:
        return json_response((await self._commands.run("usage", "--json", *_in_team(request))).value())

    async def recordings(self, request: Request) -> Response:
        rows = (await self._commands.run("replay", "--json", *_in_team(request))).value()
        for row in rows:
            del row["files"]  # the id stands for them
            row["id"] = _recording_id(*(row[each] for each in ("team", "name", "session", "began")))
        return json_response(rows)

    async def recording(self, request: Request) -> Response:
        id = request.path_params["id"]

        def chosen() -> Iterator[bytes]:
            for each in store.recordings(self._home.recordings):
                first = each.first
                if _recording_id(first.team, first.name, first.session, first.began) == id:
                    cast = Cast(*each.paths)
                    return export(cast, timeline.read(cast))
            raise RecordingError("there is no such recording any more.")

        lines = await asyncio.to_thread(chosen)
        return StreamingResponse(_pieces(lines), media_type="application/x-asciicast")

    async def fleet(self, _: Request) -> Response:
        return json_response((await self._commands.run("up", "--dry-run", "--json")).value())

    # What the user does.

    async def answer(self, request: Request) -> Response:
        body = await _body(request)
        given = body.get("answer")
        if isinstance(given, dict):
            options, choice = [f"--text={_text(given, 'text')}"], []
        else:
            options, choice = [], [_text(body, "answer")]
        argv = ("answer", "--json", f"--question={_text(body, 'question')}", *_in_team(request), *options)
        return _result(await self._commands.run(*argv, "--", request.path_params["name"], *choice))

    def _runs(self, path: str, *words: str, in_team: bool = True) -> Route:
        """Return a route that runs a command for what its path names. in_team: it has --team and --now."""

        async def run(request: Request) -> Response:
            now = (await _body(request)).get("now") is True
            options = [*(["--now"] if now else []), *_in_team(request)] if in_team else []
            return _result(await self._commands.run(*words, *options, "--", *request.path_params.values()))

        return Route(path, run, methods=["POST"])

    async def release(self, request: Request) -> Response:
        await _body(request)
        agent = f"--agent={request.path_params['name']}"
        return _result(await self._commands.run("release", "--json", *_in_team(request), agent))

    async def control(self, request: Request) -> Response:
        takeover = (await _body(request)).get("takeover") is True
        name, team = request.path_params["name"], _team(request)
        agent = await asyncio.to_thread(find_claim, self._home, name, team)
        _session(request).confirm((key(agent.team), key(agent.name)), takeover=takeover)
        return Response(status_code=204)

    async def send(self, request: Request) -> Response:
        body = await _body(request)
        options = [f"--reply-to={_text(body, 'reply_to')}"] if "reply_to" in body else []
        argv = ("send", "--json", *_in_team(request), *options, "--", _text(body, "to"), "-")
        return _result(await self._commands.run(*argv, input=_text(body, "text")))

    async def _look(self, team: str | None) -> board.Board:
        """Return what `board.look` does; of several pages that ask at once, one looks."""
        look = self._looks.get(team)
        if look is None:
            look = self._looks[team] = asyncio.create_task(asyncio.to_thread(board.look, self._home, team))
            look.add_done_callback(lambda _: self._looks.pop(team, None))
        return await asyncio.shield(look)


async def _body(request: Request) -> dict[str, Any]:
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                data += piece
                if len(data) > MAX_BODY:
                    raise Refused(413, f"a request has at most {MAX_BODY >> 10} KB.")
        found = json.loads(data or b"{}")
    except TimeoutError:
        raise Refused(408, "the request took too long.") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("the request must be a JSON object.")
    return found


def _recording_id(*about: object) -> str:
    """Return an id that says nothing about the recording's path. about: its team, name, session and time."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines in pieces that are worth a thread's turn."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _text(body: dict[str, Any], name: str) -> str:
    if not isinstance(value := body.get(name), str):
        raise UsageError(f"the request needs a text {name!r}.")
    return value


def _number(given: str | None, default: int) -> int:
    return min(max(int(given), 1), MOST) if given is not None and given.isdecimal() else default


def _team(request: Request) -> str | None:
    return request.query_params.get("team") or None


def _in_team(request: Request) -> list[str]:
    team = _team(request)
    return [] if team is None else [f"--team={team}"]


def _session(request: Request) -> BrowserSession:
    found: BrowserSession = request.scope["state"][SESSION]
    return found


def _result(outcome: CommandEnd) -> Response:
    """Return what a command that changes something has printed: 409 if it has failed."""
    return json_response(outcome.value(), 200 if outcome.code == 0 else 409)


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    response = json_response({"error": "the API has no such path.", "type": "UsageError"}, 404)
    await response(scope, receive, send)


async def _mistake(_: Request, error: Exception) -> Response:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return json_response({"error": str(error), "type": type(error).__name__}, status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response()


async def _defect(_: Request, error: Exception) -> Response:
    text = f"relay web failed to do that ({type(error).__name__}). Its terminal says more."
    return json_response({"error": text, "type": "RelayError"}, 500)
