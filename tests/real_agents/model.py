"""A scripted model on loopback, which records an agent's requests and answers as a test has scripted.

    with Model(Rule("ping", "pong")) as model:     # an agent connects to model.port
        ...                                        # whose user says "ping"
        assert model.count("ping") == 1            # it was received once

The first rule that matches answers. Step n of a rule answers the n-th request of a turn: after a
step that calls a tool, the next one follows when the tool's result has arrived. With no rule, or past the
last step, the model says "Done.".
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from real_agents.dialects import Answer, Call, Dialect, Tool, Turn, dialect_of

SHELLS = ("Bash", "bash", "shell_command", "exec_command", "shell", "run_shell_command")
"""Agents' names for the tool that runs a command line."""

HELD = 60.0
"""Seconds until a held answer continues; only a broken test takes that long."""


@dataclass(frozen=True, slots=True)
class Shell:
    """A command line for the agent's shell tool. escalate: leave codex's sandbox."""

    command: str
    escalate: bool = False


@dataclass(frozen=True, slots=True)
class RelayCall:
    """A call of one of relay's tools."""

    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One answer: `text`, then `calls`; or an HTTP error.

    hold: the answer stops after `after` events (0: before its first byte) until this is set.
    pace: seconds between two events, as with real models.
    error: with a status, the JSON error object to send in place of the usual one.
    headers: further headers of the answer.
    """

    text: str = ""
    calls: tuple[Call | Shell | RelayCall, ...] = ()
    hold: threading.Event | None = None
    after: int = 0
    status: int = 200
    pace: float = 0.0
    error: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Rule:
    """Answers for turns whose newest user text matches `match`, a regular expression.

    system: searched in the system prompt; tools: only for requests with, or without, tools;
    side: a side request (for a title, for memory), not part of the conversation.
    """

    def __init__(
        self, match: str, *steps: Step | str, system: str = "", tools: bool | None = None, side: bool = False
    ) -> None:
        self.match = re.compile(match, re.DOTALL)
        self.system = re.compile(system, re.DOTALL)
        self.tools = tools
        self.side = side
        self.steps = tuple(Step(step) if isinstance(step, str) else step for step in steps)

    def fits(self, turn: Turn) -> bool:
        return (
            (self.tools is None or self.tools == bool(turn.tools))
            and self.match.search(turn.user) is not None
            and self.system.search(turn.system) is not None
        )

    def step(self, number: int) -> Step:
        return self.steps[number] if number < len(self.steps) else Step("Done.")


_TITLE = '{"title": "A title", "isNewTopic": false}'
SIDE_RULES = (
    Rule(
        "",
        _TITLE,
        system="(?i)(generate a concise.*title|sentence-case title|title for|task title"
        "|title generator|new conversation topic)",
        tools=False,
        side=True,
    ),
    Rule("(?i)generate a concise, single-line task title", _TITLE, side=True),
    Rule("^Managed memory directory", "Nothing to remember.", side=True),
    Rule("", "{}", system="(?i)suggestion generator|predict what the user", side=True),
)
"""Side requests: claude, codex and opencode ask for a title (with the user's text), qwen for its memory."""
_DEFAULT = Rule("", "Done.")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the conversation, the step that answers it, and its time in seconds since the epoch."""

    turn: Turn
    step: Step
    time: float


class Model:
    """The server. A test may replace `script` at any time; `requests` are the conversation's, in order."""

    def __init__(self, *script: Rule) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.faults: list[str] = []  # requests that no rule or dialect expected
        self.answered = 0  # streams completely written
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Model:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for request in self.requests:
            if request.step.hold is not None:
                request.step.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def received(self, *roles: str) -> list[str]:
        """Return each distinct text that the model received. roles: by default, all but the model's own."""
        entries = dict.fromkeys(entry for request in list(self.requests) for entry in request.turn.entries)
        return [each.text for each in entries if each.role in (roles or ("user", "note", "result"))]

    def count(self, text: str) -> int:
        """Return how often the model received `text`, counting in each request only what it adds."""
        counts = [
            sum(entry.text.count(text) for entry in request.turn.entries if entry.role != "assistant")
            for request in list(self.requests)
        ]
        return sum(max(0, now - before) for before, now in itertools.pairwise([0, *counts]))

    def answer(self, turn: Turn) -> Step:
        """Return the step that answers `turn`, and record it unless it is a side request."""
        rule = next((each for each in (*SIDE_RULES, *self.script) if each.fits(turn)), _DEFAULT)
        step = rule.step(turn.step)
        if not rule.side:
            self.requests.append(Request(turn, step, time.time()))
        return step


def _parts(step: Step, turn: Turn) -> Iterator[str | Call]:
    if step.text or not step.calls:
        yield step.text
    for call in step.calls:
        match call:
            case Shell():
                yield _shell(call, turn)
            case RelayCall():
                yield _relay(call, turn)
            case _:
                yield call


def _shell(shell: Shell, turn: Turn) -> Call:
    """Return a call of the agent's shell tool, with arguments that fit its schema."""
    offered = {tool.name: tool.schema for tool in turn.tools}
    name = next(each for each in SHELLS if each in offered)
    properties = offered[name].get("properties") or {}
    key = "cmd" if "cmd" in properties else "command"
    listed = (properties.get(key) or {}).get("type") == "array"
    arguments: dict[str, Any] = {key: ["bash", "-lc", shell.command] if listed else shell.command}
    if "description" in properties:
        arguments["description"] = "Run a scripted command"
    if "is_background" in properties:
        arguments["is_background"] = False
    if shell.escalate and "sandbox_permissions" in properties:
        arguments |= {"sandbox_permissions": "require_escalated", "justification": "May this command run?"}
    return Call(name, arguments)


def _relay(call: RelayCall, turn: Turn) -> Call:
    """Return a call by the agent's own name for the tool; some agents list tools only when asked for them."""
    name = f"mcp__relay__{call.tool}"
    ending = re.compile(f"relay[-_]+{call.tool}$")
    offered = (tool for tool in turn.tools if ending.search(f"{tool.namespace}_{tool.name}"))
    tool = next(offered, Tool(name, {}))
    return Call(tool.name, call.input, tool.namespace)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    model: Model

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore agents that disconnect during a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._json({})

    def do_GET(self) -> None:
        entry = {"id": "mock-model", "object": "model", "type": "model", "display_name": "Mock"}
        self._json({"object": "list", "data": [entry], "models": [entry], "has_more": False})

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        body = json.loads(self._body() or b"{}")
        if path.endswith(("/count_tokens", ":countTokens")):
            self._json({"input_tokens": 100, "totalTokens": 100})
        elif dialect := dialect_of(path):
            self._answer(dialect, body, bool(body.get("stream")) or "stream" in path)
        else:
            self._json({"error": {"message": "not found", "type": "not_found_error"}}, 404)

    def _answer(self, dialect: Dialect, body: Mapping[str, Any], streaming: bool) -> None:
        try:
            turn = dialect.read(body)
            step = self.server.model.answer(turn)
            answer = Answer(tuple(_parts(step, turn)))
        except (KeyError, TypeError, StopIteration) as error:
            self.server.model.faults.append(f"{self.path}: {error!r}")
            return self._json({"error": {"message": repr(error), "type": "invalid_request_error"}}, 400)
        if step.status != 200:
            kind, why = ("overloaded_error", "Overloaded: ") if step.status == 529 else ("api_error", "")
            problem = step.error or {"type": kind, "message": f"{why}scripted error {step.status}"}
            return self._json({"type": "error", "error": problem}, step.status, step.headers)
        if not streaming:
            return self._json(dialect.whole(answer))
        self._stream(dialect, answer, step)
        self.server.model.answered += 1
        return None

    def _stream(self, dialect: Dialect, answer: Answer, step: Step) -> None:
        """Write server-sent events (WHATWG HTML, 9.2), then close the connection."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        for name, value in step.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        for number, (name, data) in enumerate(dialect.stream(answer)):
            if step.hold is not None and number == step.after:
                step.hold.wait(HELD)
            time.sleep(step.pace)
            head = f"event: {name}\n" if name else ""
            line = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {line}\n\n".encode())
            self.wfile.flush()

    def _json(self, data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        raw = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status in (400, 401):
            self.send_header(
                "x-should-retry", "false"
            )  # as Anthropic's API does; otherwise claude tries ten times
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.headers.get("Content-Encoding"):
            case "gzip":
                return gzip.decompress(raw)
            case "deflate":
                return zlib.decompress(raw)
        return raw
