"""Agents' token usage, from transcripts that real agents wrote (tests/agents/transcripts)."""

from __future__ import annotations

import json
import os
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.named_transcripts import Named
from relay.agents.prices import Price, Prices
from relay.agents.rate_limits import LimitWindow, RateLimits
from relay.agents.usage import Charge, Spent, Tokens, number
from relay.agents.usage_reader import UsageReader
from relay.errors import ConfigError
from relay.home import Home

WITH_USAGE = [kind for kind in kinds.names() if kinds.find(kind).usage(set()) is not None]

CAPTURED = Path(__file__).parent / "transcripts"

PRICES = Prices("2026-01-01", {"claude-opus-4-8": Price(5, 25, 0.5, 6.25, 10)})

EXPECTED = {
    # eleven messages; one with several lines counts once
    "claude.jsonl": {
        "claude-opus-4-8": Tokens(
            22217 + 22306 + 22393 + 22424 + 22502 + 22586 + 22730 + 22774 + 22913,
            7 + 4 + 3 + 2 + 2 + 2 + 20 + 5 + 3,
        )
    },
    "claude-subagent.jsonl": {"claude-opus-4-8": Tokens(11348 + 11979, 5 + 3)},
    "codex-subagent.jsonl": {"mock-model": Tokens(20586, 20)},  # according to its last total
    "qwen.jsonl": {
        "mock-model": Tokens(19620 + 19731 + 19846 + 19871 + 13577 + 13685 + 19957, 70)
    },  # including the two answers of its subagent
    "qwen-interrupted.jsonl": {"mock-model": Tokens(19620 + 19731 + 19845, 30)},
    "copilot.jsonl": {"mock-model": Tokens(700, 70)},  # including the two answers of its subagent
    "gemini.jsonl": {"gemini-2.5-flash": Tokens(300, 30)},
    "gemini-interrupted.jsonl": {"gemini-2.5-flash": Tokens(200, 20)},
}


def kind_of(name: str) -> str:
    return name.partition(".")[0].partition("-")[0]


def reader_of(path: Path, kind: str, began: float = 0.0, prices: Prices = PRICES, **more: Any) -> UsageReader:
    reader = UsageReader(kind, prices, began=began, **more)
    reader.event(event(path, NativeName.TOOL_PRE))
    return reader


def event(path: Path, name: NativeName = NativeName.PROMPT_SUBMIT, **fields: Any) -> NativeEvent:
    return NativeEvent(name, "claude", transcript_path=str(path), session_id="s", **fields)


def used(reader: UsageReader) -> dict[str, Tokens]:
    while reader.read():
        pass
    return {model: spent.tokens for model, spent in reader.models.items() if spent.tokens}


@pytest.mark.parametrize("name", EXPECTED)
def test_usage_in_real_transcripts_is_counted_once(name: str) -> None:
    assert used(reader_of(CAPTURED / name, kind_of(name))) == EXPECTED[name]


@pytest.mark.parametrize("name", ["codex.jsonl", "codex-compacted.jsonl", "codex-helped.jsonl"])
@pytest.mark.parametrize("exact", [True, False])
def test_codex_usage_adds_up_to_its_own_total(name: str, exact: bool, tmp_path: Path) -> None:
    """The sum is right with a record of each response, and with only the counts of older versions."""
    lines = (CAPTURED / name).read_text().splitlines()
    if not exact:
        lines = [line for line in lines if '"token_usage_record"' not in line]
    path = tmp_path / "rollout.jsonl"
    path.write_text("\n".join(lines) + "\n")
    totals = [
        entry["payload"]["info"]["total_token_usage"]
        for entry in map(json.loads, lines)
        if entry["payload"].get("type") == "token_count" and entry["payload"].get("info")
    ]
    (tokens,) = used(reader_of(path, "codex")).values()
    assert tokens.total >= totals[-1]["total_tokens"] > 0
    if not exact:
        assert tokens.total == totals[-1]["total_tokens"]


def codex(**payload: Any) -> str:
    return (
        json.dumps({"timestamp": "2026-11-22T06:00:00.000Z", "type": "event_msg", "payload": payload}) + "\n"
    )


def count(total: int, last: int) -> str:
    def tokens(number: int) -> dict[str, int]:
        return {"input_tokens": number, "cached_input_tokens": number // 2, "output_tokens": 1}

    info = {"total_token_usage": tokens(total), "last_token_usage": tokens(last)}
    return codex(type="token_count", info=info)


def test_a_codex_subagent_is_not_charged_for_counts_copied_from_its_parent(
    tmp_path: Path,
) -> None:
    parent, child, fresh = (tmp_path / name for name in ("parent.jsonl", "child.jsonl", "fresh.jsonl"))
    meta = {"timestamp": "2026-11-22T06:00:00.000Z", "type": "session_meta"}
    parent.write_text(json.dumps({**meta, "payload": {"id": "p"}}) + "\n" + count(100, 100) + count(300, 200))
    source = {"id": "c", "parent_thread_id": "p", "source": {"subagent": {}}}
    begin = json.dumps({**meta, "payload": source}) + "\n"
    child.write_text(begin + count(100, 100) + count(300, 200) + count(350, 50) + count(350, 50))
    fresh.write_text(begin.replace('"c"', '"f"') + count(70, 70))
    reader = reader_of(parent, "codex")
    for path in (child, fresh):
        fields = {"agent_transcript_path": str(path)}
        reader.event(event(parent, NativeName.SUBAGENT_STOP, agent_id="c", raw=fields))
    (tokens,) = used(reader).values()
    assert tokens == Tokens(input=50 + 100 + 25 + 35, output=4, cache_read=50 + 100 + 25 + 35)


def claude(
    id: str, output: int, model: str = "m", time: str = "2026-11-22T06:00:00.000Z", **usage: int
) -> str:
    message = {"id": id, "model": model, "usage": {"input_tokens": 10, "output_tokens": output, **usage}}
    return json.dumps({"type": "assistant", "timestamp": time, "message": message}) + "\n"


def test_the_largest_record_of_a_message_counts_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(claude("a", 1) + claude("b", 9) + claude("a", 5) + claude("b", 2) + claude("a", 5))
    assert used(reader_of(path, "claude")) == {"m": Tokens(20, 14)}


def test_claudes_cache_tokens_are_counted_separately(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    entry = json.loads(claude("a", 1, cache_read_input_tokens=7, cache_creation_input_tokens=5))
    entry["message"]["usage"]["cache_creation"] = {"ephemeral_1h_input_tokens": 3}
    path.write_text(json.dumps(entry) + "\n")
    assert used(reader_of(path, "claude")) == {"m": Tokens(10, 1, 7, 5, 3)}


def test_claudes_synthetic_messages_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(claude("a", 1, "<synthetic>"))
    assert used(reader_of(path, "claude")) == {}


def test_subagents_of_claude_and_gemini_are_found_next_to_the_transcript(tmp_path: Path) -> None:
    main = tmp_path / "s.jsonl"
    main.write_text(claude("a", 1))
    reader = reader_of(main, "claude")
    assert used(reader) == {"m": Tokens(10, 1)}
    (tmp_path / "s" / "subagents").mkdir(parents=True)
    (tmp_path / "s" / "subagents" / "agent-1.jsonl").write_text(claude("b", 2))
    assert used(reader) == {"m": Tokens(20, 3)}
    chats = tmp_path / "chats"
    (chats / "s").mkdir(parents=True)
    shutil.copy(CAPTURED / "gemini.jsonl", chats / "session-x.jsonl")
    other = (CAPTURED / "gemini.jsonl").read_text().replace('"id":"', '"id":"sub')
    (chats / "s" / "sub.jsonl").write_text(other)
    assert used(reader_of(chats / "session-x.jsonl", "gemini")) == {"gemini-2.5-flash": Tokens(600, 60)}


def test_any_number_of_subagents_is_counted(tmp_path: Path) -> None:
    """Subagents that ended long ago are followed only if they continue; the main transcript always is."""
    subagents = tmp_path / "one" / "subagents"
    subagents.mkdir(parents=True)
    main, notes = tmp_path / "one.jsonl", list[dict[str, Any]]()
    reader = UsageReader("claude", PRICES, began=0.0, followed=notes.append)
    reader.event(event(main, NativeName.SESSION_START))
    main.write_text(claude("main", 1))
    for each in range(700):
        path = subagents / f"agent-{each}.jsonl"
        reader.event(event(main, NativeName.SUBAGENT_START, agent_id=str(each)))
        path.write_text(claude(f"sub {each}", 1))
        if each % 100 == 0:
            used(reader)
    assert used(reader) == used(reader) == {"m": Tokens(7010, 701)}
    assert len(reader._files) < 600
    with (subagents / "agent-3.jsonl").open("a") as file:
        file.write(claude("resumed", 1))
    assert used(reader) == used(reader) == {"m": Tokens(7020, 702)}
    cleared = tmp_path / "two.jsonl"
    reader.event(event(cleared, NativeName.SESSION_START))
    cleared.write_text("".join(claude(f"after /clear {each}", 1) for each in range(51)))
    assert used(reader) == {"m": Tokens(7530, 753)}
    second = UsageReader("claude", PRICES, began=99e9)
    second.resume(json.loads(json.dumps(notes)))
    assert used(second) == used(reader)


def test_a_forgotten_transcript_is_continued_when_an_event_names_it(tmp_path: Path) -> None:
    """More answers have followed than the reader remembers."""
    reader = UsageReader("qwen", PRICES, began=0.0)
    line = (CAPTURED / "qwen.jsonl").read_text()
    first = tmp_path / "first.jsonl"
    first.write_text(line)
    reader.event(event(first, NativeName.TOOL_PRE))
    for each in range(600):
        path = tmp_path / f"{each}.jsonl"
        path.touch()
        reader.event(event(path, NativeName.TOOL_PRE))
    before = used(reader)
    assert str(first) not in reader._files
    reader._sums._charges.clear()
    reader.event(event(first, NativeName.TOOL_PRE))
    assert used(reader) == before == EXPECTED["qwen.jsonl"]


def test_only_usage_of_this_run_counts(tmp_path: Path) -> None:
    """An old conversation may continue, and its lines may be copied into a new file."""
    path = tmp_path / "t.jsonl"
    old = claude("old", 100, time="2026-11-22T05:59:59.999Z")
    path.write_text(old)
    began = 1795327200.0  # 2026-11-22T06:00:00Z
    reader = UsageReader("claude", PRICES, began=began)
    reader.event(event(path, NativeName.SESSION_START))
    with path.open("a") as file:
        file.write(old + claude("new", 1))
    copy = tmp_path / "copy.jsonl"
    copy.write_text(old + claude("newer", 2))
    reader.event(event(copy, NativeName.TOOL_PRE))
    assert used(reader) == {"m": Tokens(20, 3)}


def test_codex_names_the_model_before_its_first_event(tmp_path: Path) -> None:
    """An old conversation that continues is not charged again."""
    path = tmp_path / "t.jsonl"
    context = codex(model="gpt-5").replace("event_msg", "turn_context")
    path.write_text(context + count(100, 100).replace("06:00:00", "05:59:59"))
    reader = UsageReader("codex", PRICES, began=1795327200.0)  # 2026-11-22T06:00:00Z
    reader.event(event(path, NativeName.SESSION_START))
    with path.open("a") as file:
        file.write(count(110, 10))
    assert used(reader) == {"gpt-5": Tokens(5, 1, 5)}


def test_another_session_counts_from_where_the_first_started(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(claude("old", 100, time=""))
    notes: list[dict[str, Any]] = []
    first = UsageReader("claude", PRICES, began=5.0, followed=notes.append)
    first.event(event(path))
    with path.open("a") as file:
        file.write(claude("a", 1))
    assert used(first) == {"m": Tokens(10, 1)}
    second = UsageReader("claude", PRICES, began=99e9)
    second.resume(json.loads(json.dumps(notes)))
    assert used(second) == used(first)


def test_a_named_record_is_read_as_soon_as_it_exists(tmp_path: Path) -> None:
    named = Named("gemini", f"{tmp_path}/chats/*.jsonl", "2026-11-23T15:43:48.000Z")
    reader = UsageReader("gemini", PRICES, began=99e9, named=named)
    assert used(reader) == {}
    (tmp_path / "chats").mkdir()
    shutil.copy(CAPTURED / "gemini.jsonl", tmp_path / "chats" / "a.jsonl")
    assert used(reader) == {"gemini-2.5-flash": Tokens(200, 20)}


def test_a_long_transcript_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(claude(str(number), 1) for number in range(20_000)))  # more than one call reads
    reader = reader_of(path, "claude")
    assert reader.read()
    assert used(reader) == {"m": Tokens(200_000, 20_000)}
    read: list[int] = []
    pread = os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counting)
    assert used(reader) == {"m": Tokens(200_000, 20_000)}
    assert not read
    line = claude("last", 1)
    with path.open("a") as file:
        file.write(line)
    assert used(reader) == {"m": Tokens(200_010, 20_001)}
    assert sum(read) < len(line) + 200


def test_a_truncated_or_replaced_file_is_read_again_and_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(claude("a", 1) + claude("b", 1))
    reader = reader_of(path, "claude")
    assert used(reader) == {"m": Tokens(20, 2)}
    path.write_text(claude("b", 1))  # truncated
    assert used(reader) == {"m": Tokens(20, 2)}
    other = tmp_path / "other"
    other.write_text(claude("a", 1) + claude("c", 1))
    other.replace(path)  # another inode
    assert used(reader) == {"m": Tokens(30, 3)}


@pytest.mark.parametrize(
    "path", ["", "relative.jsonl", "/nul\0/x", "/no/such/file.jsonl", "/dev/zero", "/" + "x" * 5000]
)
def test_an_invalid_path_is_ignored(path: str) -> None:
    reader = UsageReader("claude", PRICES, began=0)
    reader.event(NativeEvent(NativeName.STOP, "claude", transcript_path=path, session_id="../.."))
    assert used(reader) == {}


# Whatever the bytes, nothing raises, and complete lines count.

LINES = {
    name: [line for line in (CAPTURED / name).read_bytes().splitlines() if len(line) < 20_000]
    for name in (*EXPECTED, "codex.jsonl", "relay.jsonl")
}


@settings(max_examples=60)
@given(data=st.data())
def test_garbled_lines_are_ignored(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(LINES)))
    line = bytearray(data.draw(st.sampled_from(LINES[name])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(line)))
        match data.draw(st.sampled_from(("cut", "put", "type"))):
            case "cut":
                del line[at:]
            case "put":
                line[at:at] = data.draw(st.binary(max_size=20))
            case "type":
                values = (b"null", b"-1", b"1e400", b"[]", b"{}", b'"x"', b"true", b"99999999999999999999")
                for key in (b'"input_tokens":', b'"usage":', b'"promptTokenCount":', b'"input":', b'"info":'):
                    line = bytearray(
                        bytes(line).replace(key, key + data.draw(st.sampled_from(values)) + b",", 1)
                    )
    for kind in WITH_USAGE:
        for charge in kinds.find(kind).usage(set()).read(bytes(line)):
            assert isinstance(charge, Charge)
            assert all(value >= 0 for value in charge.tokens.public().values())
            assert PRICES.spent(charge.model, charge.tokens).cost >= 0


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(WITH_USAGE), usage=JSON, type=st.sampled_from(("assistant", "gemini", "usage", 3))
)
def test_any_json_is_a_charge_or_none(kind: str, usage: object, type: object) -> None:
    line = {
        "type": type,
        "id": "i",
        "uuid": usage,
        "tokens": usage,
        "usageMetadata": usage,
        "message": {"id": "i", "usage": usage, "model": usage},
        "input": usage,
    }
    charges = kinds.find(kind).usage(set()).read(json.dumps(line).encode())
    assert all(charge.tokens.total >= 0 for charge in charges)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_the_sum_is_the_same_however_the_lines_arrive(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Pieces end anywhere, some arrive twice, and a main file and a subagent's take turns."""
    folder = tmp_path_factory.mktemp("pieces")
    rng = random.Random(seed)
    parts = {folder / "s.jsonl": "claude.jsonl", folder / "s/subagents/a.jsonl": "claude-subagent.jsonl"}
    (folder / "s" / "subagents").mkdir(parents=True)
    left = {}
    for path, name in parts.items():
        lines = (CAPTURED / name).read_bytes().splitlines(keepends=True)
        lines += [*rng.sample(lines, 3), b"{broken\n", b"\xff\xfe\n", b"\n"]
        path.touch()
        left[path] = b"".join(lines)
    reader = reader_of(folder / "s.jsonl", "claude")
    while any(left.values()):
        path = rng.choice([path for path, data in left.items() if data])
        size = rng.randint(1, 20_000)
        with path.open("ab") as file:
            file.write(left[path][:size])
        left[path] = left[path][size:]
        used(reader)
    main, subagent = (EXPECTED[name]["claude-opus-4-8"] for name in parts.values())
    assert used(reader) == {"claude-opus-4-8": main + subagent}
    assert reader.models["claude-opus-4-8"].cost == pytest.approx(
        ((main + subagent).input * 5 + (main + subagent).output * 25) / 1e6
    )


# Prices


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(*(str(tmp_path / name) for name in ("config", "state", "run"))).ensure()


def test_the_shipped_prices_are_dated_and_complete(home: Home) -> None:
    prices = Prices.load(home)
    assert len(prices.date) == 10
    for model, price in prices._models.items():
        assert price.output > price.input >= price.cache_read > 0, model
        if price.long is not None:
            assert price.above > 0 and price.long.input > price.input, model


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "anthropic/claude-sonnet-4.5",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5@20250929",
        "Claude-Sonnet-4-5[1m]",
        "openrouter/anthropic/claude-sonnet-4.5:beta",
    ],
)
def test_a_price_is_found_by_each_name_of_its_model(home: Home, name: str) -> None:
    price = Prices.load(home).of(name)
    assert price is not None and (price.input, price.output) == (3, 15)


def test_the_longest_name_wins_and_other_models_have_no_price(home: Home) -> None:
    prices = Prices.load(home)
    mini, full = prices.of("gpt-5-mini-2025-08-07"), prices.of("gpt-5-2025-08-07")
    assert mini is not None and full is not None and mini.input < full.input
    for name in (
        "gpt-5-huge",
        "claude-sonnet-4-5-turbo",
        "gpt",
        "",
        "mock-model",
        "claude-opus-4-99",
        "x-gpt-5",
    ):
        assert prices.of(name) is None, name


def test_the_cost_of_an_unknown_model_is_unknown_and_never_zero(home: Home) -> None:
    prices = Prices.load(home)
    unknown = prices.spent("mock-model", Tokens(10, 5))
    assert unknown.known_cost is None
    assert unknown.unpriced == 15
    both = unknown + prices.spent("gpt-5", Tokens(1_000_000))
    assert both.known_cost == 1.25
    assert both.unpriced == 15
    assert prices.spent("mock-model", Tokens(10, 5), 0.5).known_cost == 0.5  # the agent's own figure
    assert prices.spent("mock-model", Tokens(10, 5), 0.0).known_cost is None
    assert Spent().known_cost == 0


def test_each_kind_of_token_has_its_price() -> None:
    long = Price(10, 50, 1, 12, 20)
    price = Price(5, 25, 0.5, 6.25, 10, above=1000, long=long)
    assert price.cost(Tokens(100, 200, 300, 400, 150)) == pytest.approx(
        (100 * 5 + 200 * 25 + 300 * 0.5 + 250 * 6.25 + 150 * 10) / 1e6
    )
    assert price.cost(Tokens(500, 9999, 500)) == pytest.approx((500 * 5 + 9999 * 25 + 500 * 0.5) / 1e6)
    assert price.cost(Tokens(501, 1, 500)) == pytest.approx((501 * 10 + 50 + 500 * 1) / 1e6)


def test_a_users_file_adds_and_replaces_prices(home: Home) -> None:
    (home.config / "prices.toml").write_text(
        '[models]\n"local" = { input = 0, output = 0 }\n"gpt-5" = { input = 9, output = 90 }\n'
    )
    prices = Prices.load(home)
    assert prices.spent("local", Tokens(10, 10)).known_cost == 0
    assert (
        prices.spent("gpt-5", Tokens(0, 1_000_000, 1_000_000)).known_cost == 99
    )  # no discount unless stated
    assert prices.of("gpt-5-mini") == Prices.load(Home("/none", "/none", "/none")).of("gpt-5-mini")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models = 3", "not a table"),
        ("[model]", "unknown key 'model'"),
        ('[models]\n"x" = 3', "not a table"),
        ('[models]\n"x" = { input = 1 }', "has no 'output'"),
        ('[models]\n"x" = { input = 1, output = "2" }', "'output' of 'x' must be a number"),
        ('[models]\n"x" = { input = 1, output = -2 }', "'output' of 'x' must be a number"),
        ('[models]\n"x" = { inptu = 1, output = 2 }', "unknown key 'inptu' of 'x'. Did you mean input?"),
        ("[models", "cannot be read"),
    ],
)
def test_an_error_in_the_users_file_is_reported_with_its_path(home: Home, text: str, expected: str) -> None:
    (home.config / "prices.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Prices.load(home)
    assert expected in str(caught.value)
    assert str(home.config / "prices.toml") in str(caught.value)


@pytest.mark.parametrize("value", [None, True, "3", -1, float("nan"), float("inf"), 1e300, [], 2**60])
def test_an_invalid_token_count_is_zero(value: object) -> None:
    assert number(value) == 0


def limits(at: str, **limits: Any) -> str:
    payload = {"type": "token_count", "info": None, "rate_limits": limits}
    return json.dumps({"timestamp": at, "type": "event_msg", "payload": payload}) + "\n"


def test_the_newest_rate_limits_of_codex_count(tmp_path: Path) -> None:
    """The shortest window comes first, whichever is called primary; null ones are ignored."""
    path = tmp_path / "rollout.jsonl"
    week = {"used_percent": 7, "window_minutes": 10080, "resets_at": 1_800_000_000}
    path.write_text(
        limits("2026-11-22T06:00:00Z", primary={"used_percent": 99.5})
        + limits("2026-11-22T06:00:10Z", primary=week, secondary={
            "used_percent": 42.5, "window_minutes": 300, "resets_in_seconds": 60})
        + limits("2026-11-22T06:00:20Z", primary=None, secondary=None)
    )  # fmt: skip
    reader = reader_of(path, "codex")
    used(reader)
    at = datetime(2026, 11, 22, 6, 0, 10, tzinfo=UTC).timestamp()
    expected = RateLimits(at, (LimitWindow(42.5, 300, at + 60), LimitWindow(7.0, 10080, 1_800_000_000.0)))
    assert reader.limits == expected
    assert RateLimits.from_json(json.loads(json.dumps(expected.public()))) == expected
    late = reader_of(path, "codex", began=at + 1)
    used(late)
    assert late.limits is None


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["primary", "secondary", "used_percent", "resets_at", "windows", "at"]),
        inner,
    ),
))  # fmt: skip
def test_any_rate_limits_are_read_or_ignored(given: Any) -> None:
    fields = {"type": "token_count", "rate_limits": given}
    line = {"type": "event_msg", "timestamp": "2026-11-22T06:00:00Z", "payload": fields}
    lines = kinds.find("codex").usage(set())
    lines.read(json.dumps(line).encode())
    for read in (lines.limits, RateLimits.from_json(given)):
        assert read is None or json.dumps(read.public(), allow_nan=False)
