"""A user's configuration of mem0 and Qdrant is translated; no library is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.errors import ConfigError, MemoryStoreError
from relay.memory.backend import Memory
from relay.memory.config import snake
from relay_memory import plugins
from relay_memory.embedder import embeddable, embedder_settings, known_dimensions, ollama_url, open_embedder
from relay_memory.mem0_config import STORES, translate
from relay_memory.options import camel, options
from relay_memory.qdrant_backend import qdrant_settings
from relay_memory.record import decode, encode, storable

FEW = settings(max_examples=40)
FOLDER = Path("/store")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # including lone surrogates


def test_the_configuration_is_translated_for_mem0() -> None:
    """R63: the example of the hooks API."""
    translated = translate(
        {
            "vectorStore": {"provider": "qdrant", "url": "http://localhost:6333"},
            "embedder": {"provider": "ollama", "model": "nomic-embed-text"},
        },
        FOLDER,
    )
    assert translated.dimensions == 768
    assert translated.for_mem0(768) == {
        "vector_store": {
            "provider": "qdrant",
            "config": {
                "url": "http://localhost:6333",
                "collection_name": "relay_mem0",
                "embedding_model_dims": 768,
            },
        },
        "embedder": {"provider": "ollama", "config": {"model": "nomic-embed-text", "embedding_dims": 768}},
        "llm": {"provider": "lmstudio", "config": {}},
        "history_db_path": ":memory:",
    }


def test_the_default_is_local() -> None:
    translated = translate({}, FOLDER)
    assert translated.local == FOLDER / "qdrant"
    assert translated.for_mem0(768)["embedder"]["config"]["model"] == "nomic-embed-text"
    assert qdrant_settings({}, FOLDER).options == {"path": "/store/qdrant"}


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ({"provider": "chroma"}, {"path": "/store/chroma"}),
        ({"provider": "chroma", "url": "http://h:81"}, {"host": "h", "port": 81}),
        ({"provider": "Chroma", "host": "h"}, {"host": "h", "port": 8000}),
        ({"provider": "qdrant", "host": "h"}, {"host": "h", "port": 6333}),
        ({"provider": "qdrant", "url": "https://h", "apiKey": "k"}, {"url": "https://h", "api_key": "k"}),
        (
            {"provider": "pgvector", "url": "postgresql://me@h/db"},
            {"connection_string": "postgresql://me@h/db"},
        ),
        ({"provider": "pgvector", "connectionString": "dbname=x"}, {"connection_string": "dbname=x"}),
        (
            {"provider": "pgvector", "host": "h", "user": "u", "password": "p"},
            {"host": "h", "user": "u", "password": "p", "port": 5432, "dbname": "postgres"},
        ),
    ],
)
def test_the_location_of_a_store_is_translated(store: dict[str, Any], expected: dict[str, Any]) -> None:
    found = dict(translate({"vectorStore": store}, FOLDER).store)
    found.pop("hnsw", None)
    assert found.pop("collection_name") == "relay_mem0"
    assert found == expected


MISTAKES = [
    ({"vectorstore": {}}, r"no option 'vectorstore'. Did you mean 'vector_store'\?"),
    ({"embeder": {}}, r"Did you mean 'embedder'\?"),
    ({"llm": {"provider": "openai"}}, "'llm': relay stores memories word for word.*Remove it"),
    ({"historyDbPath": "x"}, "does not let mem0 keep a history"),
    ({"vectorStore": {"provider": "qdrnt"}}, r"no vector store 'qdrnt'. Did you mean 'qdrant'\?"),
    ({"vectorStore": {"provider": "pinecone"}}, "no vector store 'pinecone'.*custom backend"),
    ({"vectorStore": {"provider": 3}}, "no vector store 3"),
    ({"vectorStore": "qdrant"}, "must be a table"),
    ({"vectorStore": {"ur": "x"}}, r"no option 'ur'. Did you mean 'url'\?"),
    ({"vectorStore": {"url": 6333}}, "'url' of .* is 6333, and must be a string"),
    ({"vectorStore": {"url": ""}}, "must be a string"),
    ({"vectorStore": {"host": "h", "port": "6333"}}, "must be a whole number"),
    ({"vectorStore": {"onDisk": 1}}, "must be true or false"),
    ({"vectorStore": {"port": 6333}}, "'port' without 'host'"),
    ({"vectorStore": {"url": "http://h", "path": "/p"}}, "'url' and 'path'. Keep one"),
    ({"vectorStore": {"url": "localhost:6333"}}, "not a url.*http://localhost:6333"),
    ({"vectorStore": {"url": "http://h:x"}}, "not a url"),
    ({"vectorStore": {"apiKey": "k"}}, "no 'url'.*Add 'url'"),
    ({"vectorStore": {"url": "http://a", "config": {"url": "http://b"}}}, "two values for 'url'"),
    ({"vectorStore": {"collectionName": "a", "collection_name": "b"}}, "two values for 'collectionName'"),
    ({"vectorStore": {"embeddingDims": 0}}, "at least 1"),
    ({"vectorStore": {"embeddingDims": 1536}}, "1536 dimensions.*768.*Remove embeddingDims"),
    ({"vectorStore": {"provider": "chroma", "url": "https://h"}}, "not a url"),
    ({"vectorStore": {"provider": "chroma", "apiKey": "k"}}, "'apiKey' and 'tenant'"),
    ({"vectorStore": {"provider": "pgvector"}}, "does not say 'host'"),
    (
        {"vectorStore": {"provider": "pgvector", "url": "postgresql://h/d", "user": "u"}},
        "'url' and 'user'",
    ),
    ({"embedder": {"provider": "olama"}}, "unknown embedder provider 'olama'.*ollama"),
    ({"embedder": {"provider": "huggingface"}}, "names no model"),
    ({"embedder": {"provider": "fastembed", "model": "m", "url": "http://h"}}, "without a server"),
    ({"embedder": {"mdl": "x"}}, r"Did you mean 'model'\?"),
]


def test_a_mistake_is_reported_with_advice(subtests: pytest.Subtests) -> None:
    for config, message in MISTAKES:
        with subtests.test(repr(config)), pytest.raises(ConfigError, match=message):
            translate(config, FOLDER)


def test_no_message_contains_a_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        translate(
            {"vectorStore": {"provider": "pgvector", "url": "mysql://me:hush@h/d?password=hush"}}, FOLDER
        )
    assert "hush" not in str(caught.value)
    translated = translate(
        {"vectorStore": {"provider": "pgvector", "url": "postgresql://me:hush@h/d"}}, FOLDER
    )
    assert translated.where == "postgresql://h/d"
    assert "hush" not in repr(translated)
    qdrant = qdrant_settings({"url": "https://me:hush@h:6333?api_key=hush"}, FOLDER)
    assert qdrant.where == "https://h:6333"
    assert "hush" not in repr(qdrant)
    with pytest.raises(ConfigError, match=r"^'h' is not a url"):
        qdrant_settings({"url": "me:hush@h?api_key=a://hush"}, FOLDER)
    translated = translate({"vectorStore": {"provider": "pgvector", "url": "host=h password=hush"}}, FOLDER)
    assert translated.where == "the database of url"


@pytest.mark.parametrize("url", ["http://me:hush@h", "me:hush@h", "http://127.0.0.1:1/v1?key=hush"])
@pytest.mark.parametrize("provider", ["ollama", "openai"])
def test_no_message_contains_a_secret_of_an_embedders_url(provider: str, url: str) -> None:
    embedder = open_embedder(embedder_settings({"provider": provider, "model": "m", "url": url}))
    with pytest.raises(MemoryStoreError, match="orrect url of embedder") as caught:
        embedder.embed("hello")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("backend", "config", "read"),
    [
        ("mem0", {}, {"OLLAMA_HOST"}),
        ("qdrant", {"embedder": {"provider": "ollama", "url": "http://h"}}, set()),
        ("qdrant", {"embedder": {"provider": "openai"}}, {"OPENAI_API_KEY", "OPENAI_BASE_URL"}),
        ("mem0", {"embedder": {"provider": "openai", "url": "http://h"}}, set()),
        ("mem0", {"vectorStore": {"provider": "pgvector", "url": "dbname=x"}}, {"OLLAMA_HOST", "PGPASSWORD"}),
        ("mem0", {"embedder": {"provider": "nobody"}}, set()),
    ],
)
def test_a_backend_reads_only_its_own_variables(backend: str, config: dict[str, Any], read: set[str]) -> None:
    names = ("OLLAMA_HOST", "OPENAI_API_KEY", "OPENAI_BASE_URL", "PGPASSWORD", "PATH")
    assert set(getattr(plugins, backend).environment(config, dict.fromkeys(names, "x"))) == read


def test_qdrant_accepts_nested_and_flat_options() -> None:
    store = {"url": "http://h:6333", "apiKey": "k", "collectionName": "c"}
    nested = qdrant_settings({"vectorStore": {"provider": "qdrant", **store}}, FOLDER)
    assert nested == qdrant_settings(store, FOLDER)
    assert nested.options == {"url": "http://h:6333", "api_key": "k"}
    assert nested.collection == "c"
    with pytest.raises(ConfigError, match="two values for 'url'"):
        qdrant_settings({"url": "http://a", "vectorStore": {"url": "http://b"}}, FOLDER)
    with pytest.raises(ConfigError, match="no vector store 'chroma'"):
        qdrant_settings({"vectorStore": {"provider": "chroma"}}, FOLDER)


@pytest.mark.parametrize(
    ("model", "dimensions"),
    [
        ("nomic-embed-text", 768),
        ("nomic-embed-text:latest", 768),
        ("sentence-transformers/all-MiniLM-L6-v2", 384),
        ("text-embedding-3-small", 1536),
        ("my-own", None),
    ],
)
def test_dimensions_of_well_known_models_are_known(model: str, dimensions: int | None) -> None:
    assert known_dimensions(model) == dimensions
    assert embedder_settings({"model": model}).dimensions == dimensions


def test_ollamas_own_variable_sets_its_url() -> None:
    assert ollama_url(None, {}) == "http://localhost:11434"
    assert ollama_url(None, {"OLLAMA_HOST": "box:1"}) == "http://box:1"
    assert ollama_url("http://h:2/", {"OLLAMA_HOST": "box:1"}) == "http://h:2"


OPTIONS = {
    name: {str: st.just("http://localhost:1"), int: st.integers(1, 9), bool: st.booleans()}[kind]
    for name, kind in STORES["qdrant"].items()
}


@FEW
@given(st.fixed_dictionaries({}, optional=OPTIONS), st.data())
def test_spelling_and_nesting_make_no_difference(table: dict[str, Any], data: st.DataObject) -> None:
    flat, nested = {}, {}
    for name, value in table.items():
        written = camel(name) if data.draw(st.booleans()) else name
        (nested if data.draw(st.booleans()) else flat)[written] = value
    assert options({**flat, "config": nested}, "t", STORES["qdrant"]) == table


@FEW
@given(st.dictionaries(st.text() | st.sampled_from(["vectorStore", "embedder", "config"]), JSON))
def test_any_configuration_is_accepted_or_refused_with_a_message(config: dict[str, Any]) -> None:
    for read in (translate, qdrant_settings):
        try:
            read(config, FOLDER)
        except ConfigError as error:
            assert str(error).endswith((".", "?"))


@FEW
@given(st.sampled_from(sorted(STORES)), st.dictionaries(st.sampled_from(sorted({*STORES["qdrant"]})), JSON))
def test_any_vector_store_is_accepted_or_refused(provider: str, table: dict[str, Any]) -> None:
    try:
        translated = translate({"vectorStore": {"provider": provider, **table}}, FOLDER)
    except ConfigError:
        return
    json.dumps(translated.for_mem0(3))


def test_camel_and_snake_case_are_inverse(subtests: pytest.Subtests) -> None:
    for name in sorted({name for store in STORES.values() for name in store}):
        with subtests.test(name):
            assert snake(camel(name)) == name


@FEW
@given(ANY_TEXT, ANY_TEXT, st.booleans(), st.floats(allow_nan=False), st.dictionaries(ANY_TEXT, JSON))
def test_a_record_restores_its_memory(
    text: str, agent: str, shared: bool, time: float, metadata: dict[str, Any]
) -> None:
    memory = Memory("aaaa", text, agent, "home", shared, time, metadata)
    record = encode(memory)
    assert record.isascii()
    assert "\0" not in record
    assert decode(record, storable(text)) == memory


@FEW
@given(ANY_TEXT)
def test_a_row_of_another_program_is_not_a_record(text: str) -> None:
    if not re.match(r"\s*\{", text):
        assert decode(text, "") is None
    assert decode("[]", text) is decode('{"id": 1}', text) is None


@FEW
@given(ANY_TEXT)
def test_text_to_embed_is_never_empty_or_too_long(text: str) -> None:
    text_to_embed = embeddable(text)
    assert text_to_embed.strip()
    assert len(text_to_embed) <= 6_000
    text_to_embed.encode()


def test_metadata_that_is_not_json_is_refused() -> None:
    with pytest.raises(MemoryStoreError, match=r"is not JSON.*Use strings"):
        encode(Memory("aaaa", "text", "Alice", "home", False, 1.0, {"a": {1, 2}}))


def test_a_missing_extra_is_reported_with_the_command(tmp_path: Path) -> None:
    from relay_memory.extras import require

    with pytest.raises(MemoryStoreError, match=r"-m pip install 'agent-relay\[mem0\]'"):
        require("no_such_module_of_mem0", "the mem0 backend", extra="mem0")


PAGE = (Path(__file__).parents[2] / "docs" / "MEMORY.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_each_documented_example_is_accepted(example: dict[str, Any]) -> None:
    translated = translate(example, FOLDER)
    assert (
        translated.for_mem0(translated.dimensions or 3)["embedder"]["provider"]
        == example["embedder"]["provider"]
    )
    if example["vectorStore"].get("provider", "qdrant") == "qdrant":
        assert qdrant_settings(example, FOLDER).embedder == translated.embedder


def test_each_option_is_documented() -> None:
    assert len(EXAMPLES) > 3
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    for name in {name for store in STORES.values() for name in store}:
        assert f"`{camel(name)}`" in rows or name == "tenant"
