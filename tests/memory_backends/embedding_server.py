"""A small server with the embedding APIs of Ollama and OpenAI; vectors are hashed bags of words."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = ("bag-64", "bag-32")
"""Models unknown to relay; the number is the dimension of the vectors."""

_STOP_WORDS = {
    "a",
    "an",
    "and",
    "are",
    "at",
    "by",
    "do",
    "in",
    "is",
    "it",
    "of",
    "on",
    "so",
    "the",
    "to",
    "uses",
    "which",
    "where",
}


def vector(text: str, dimensions: int) -> list[float]:
    """Return the normalized vector of `text`; texts that share words are similar."""
    words = [word for word in re.findall(r"\w+", text.lower()) if word not in _STOP_WORDS] or [text]
    values = [0.0] * dimensions
    for word in words[:1000]:
        digest = hashlib.sha256(word.encode("utf-8", "replace")).digest()
        values[digest[0] % dimensions] += 1.0
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


class EmbeddingServer(ThreadingHTTPServer):
    """Answers on loopback until `close`; while `hanging` is set, it answers no embedding request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hanging = threading.Event()
        self.requested = threading.Event()
        self.released = threading.Event()
        self.keys: list[str | None] = []
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        self.released.set()
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer

    def do_GET(self) -> None:
        if self.path == "/api/tags":
            self._answer(
                {"models": [{"name": f"{name}:latest", "model": f"{name}:latest"} for name in MODELS]}
            )
        else:
            self._answer({"error": "no such path"}, 404)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requested.set()
        self.server.keys.append(self.headers.get("Authorization"))
        if self.server.hanging.is_set():
            self.server.released.wait()
            return
        model = request["model"].removesuffix(":latest")
        if model not in MODELS:
            self._answer({"error": f"model {model!r} not found"}, 404)
            return
        value = request["input"]
        texts = [value] if isinstance(value, str) else value
        vectors = [vector(text, int(model.partition("-")[2])) for text in texts]
        if self.path == "/api/embed":
            self._answer({"model": model, "embeddings": vectors})
        elif self.path == "/v1/embeddings":
            data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            self._answer({"object": "list", "data": data, "model": model, "usage": usage})
        else:
            self._answer({"error": "no such path"}, 404)

    def _answer(self, reply: Any, status: int = 200) -> None:
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
