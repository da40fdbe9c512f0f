"""`relay memory export` and `import`, and the backend that a project's files select."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support import Relay

MODULE = """
from pathlib import Path

from relay.errors import MemoryStoreError
from relay.memory.embedded import EmbeddedBackend


class Notes(EmbeddedBackend):
    def add(self, memory):
        if memory.text == "too much":
            raise MemoryStoreError("There is no room.")
        return super().add(memory)


def notes(config):
    return Notes(Path(config["path"]))
"""

GOOD = '{"text": "x", "agent": "you", "team": "default", "shared": true, "time": 1}'

AGENT = {"RELAY_NAME": "Alice", "RELAY_TEAM": "default"}


def backend(folder: Path) -> str:
    """Return the relay.toml table for a backend in `folder`, which runs in a helper process."""
    (folder / "notes_of_mine.py").write_text(MODULE)
    return (
        '[memory]\nbackend = "custom"\nfactory = "notes_of_mine:notes"\n'
        f"config = {{ path = {json.dumps(str(folder / 'notes.db'))} }}\n"
    )


def texts(relay: Relay, *options: str) -> list[str]:
    return [memory["text"] for memory in json.loads(relay("memory", "list", "--json", *options).stdout)]


def test_memories_move_to_another_backend_unchanged(relay: Relay, home: Path) -> None:
    """R63: nothing is lost in the move."""
    relay("memory", "save", "of Alice", "--metadata", "project=relay", env=AGENT)
    relay("memory", "save", "--shared", "-", input="two\nlines \u2028 ü", env=AGENT)
    relay("memory", "save", "--team", "other", "of another team")
    exported = relay("memory", "export").stdout
    lines = [json.loads(line) for line in exported.splitlines()]
    assert [line["text"] for line in lines] == ["of Alice", "two\nlines \u2028 ü", "of another team"]
    assert lines[0]["metadata"] == {"project": "relay"}

    (home / "relay.toml").write_text(backend(home))
    relay("trust", "relay.toml")
    assert texts(relay, "--name", "Alice") == []
    assert relay("memory", "import", "-", input=exported).stdout == "3 imported, 0 already present.\n"
    assert relay("memory", "export").stdout == exported
    assert relay("memory", "import", "-", input=exported).stdout == "0 imported, 3 already present.\n"
    assert relay("memory", "forget", lines[0]["id"], "--name", "Alice").stdout == "Forgotten.\n"
    assert relay("memory", "export", "--embedded").stdout == exported, "the exported memories remain"
    counts = json.loads(relay("memory", "import", "--json", "-", input=exported).stdout)
    assert counts == {"imported": 1, "known": 2, "renamed": 0, "left": 0}
    taken = exported.replace('"of Alice"', '"another text of hers"', 1)
    assert "1 of them have a new id" in relay("memory", "import", "-", input=taken).stdout


def test_an_import_that_fails_halfway_reports_its_progress(relay: Relay, home: Path) -> None:
    (home / "relay.toml").write_text(backend(home))
    relay("trust", "relay.toml")
    lines = [GOOD.replace('"x"', json.dumps(text)) for text in ("one", "too much", "two")]
    run = relay("memory", "import", "--json", "-", input="\n".join(lines), check=False)
    assert json.loads(run.stdout) == {"imported": 1, "known": 0, "renamed": 0, "left": 2}
    assert run.returncode == 1
    assert "There is no room. 1 of 3 memories were imported." in run.stderr
    assert texts(relay) == ["one"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("{}", "line 2 is not a memory: 'text' is missing. Nothing was imported."),
        ("[1]", "line 2 is not a memory: a memory is a JSON object."),
        ("nonsense", "line 2 is not a memory: Expecting value"),
        (
            '{"text": 1, "agent": "a", "team": "t", "shared": true, "time": 1}',
            "'text' must be a string, not 1",
        ),
        (
            '{"text": "x", "agent": "a", "team": "t", "shared": 1, "time": 1}',
            "'shared' must be true or false",
        ),
        ('{"text": "x", "agent": "a", "team": "t", "shared": true, "time": true}', "'time' must be a number"),
        *(
            (GOOD.replace("1}", f"{time}}}"), f"line 2 is not a memory: the time {time} is not in the years")
            for time in ("1767225600000000000", "100000000000000000000000000", "-1", "253402300800")
        ),
        (GOOD.replace("1}", "NaN}"), "line 2 is not a memory: the time nan is not"),
        (GOOD.replace('"x"', '" "'), "line 2 is not a memory: the text is empty"),
        ("[" * 100_000, "line 2 is not a memory"),
        ("x" * 1_048_577, "line 2 is longer than 1,048,576 bytes. Nothing was imported."),
    ],
)
def test_an_invalid_line_imports_nothing(relay: Relay, lines: str, message: str) -> None:
    result = relay("memory", "import", "-", input=f"{GOOD}\n{lines}\n", check=False)
    assert result.returncode == 1
    assert message in result.stderr
    assert texts(relay) == []
    missing = relay("memory", "import", "missing.jsonl", check=False)
    assert "missing.jsonl cannot be read: No such file" in missing.stderr


@pytest.mark.parametrize("id", ["ABCD", "a b c", "\x1b[2J", "", "x", "x" * 100, "\ud800aaa"])
def test_an_invalid_id_is_replaced(relay: Relay, id: str) -> None:
    line = GOOD.replace("{", f'{{"id": {json.dumps(id)}, ')
    output = relay("memory", "import", "-", input=line).stdout
    assert output.startswith("1 imported, 0 already present.")
    assert ("1 of them have a new id" in output) == bool(id)
    (kept,) = json.loads(relay("memory", "list", "--json").stdout)
    assert kept["id"] != id
    assert relay("memory", "forget", kept["id"]).stdout == "Forgotten.\n"
    assert texts(relay) == []


def test_a_lone_surrogate_in_a_name_is_replaced(relay: Relay) -> None:
    relay("memory", "import", "-", input=GOOD.replace('"you"', r'"\ud800"'))
    assert [memory["agent"] for memory in json.loads(relay("memory", "list", "--json").stdout)] == ["?"]


@pytest.mark.parametrize("time", [1_767_225_600_000_000_000, 1e300, -1e300, float("inf")])
def test_a_memory_with_an_invalid_time_and_id_can_be_listed_found_and_forgotten(
    relay: Relay, time: float
) -> None:
    """Earlier versions imported any number and any id."""
    relay("memory", "save", "from an earlier import")
    with closing(sqlite3.connect(relay.home / "state" / "memory.db")) as db, db:
        db.execute("UPDATE memory SET id = 'AbCd\x1b', time = ?", (float(time),))
    assert relay("memory", "list").stdout == "AbCd␛  no date  you  from an earlier import\n"
    assert relay("memory", "search", "earlier").stdout == "AbCd␛  no date  you\n    from an earlier import\n"
    assert relay("memory", "forget", "abc").stdout == "Forgotten.\n"
    assert texts(relay) == []


def test_control_characters_in_an_id_do_not_reach_the_terminal(relay: Relay) -> None:
    relay("memory", "import", "-", input=GOOD + "\n" + GOOD.replace('"x"', '"y"'))
    with closing(sqlite3.connect(relay.home / "state" / "memory.db")) as db, db:
        db.execute("UPDATE memory SET id = 'abc' || text || char(27)")
    assert "several ids: abcx␛, abcy␛." in relay("memory", "forget", "abc", check=False).stderr


@pytest.mark.parametrize("action", [("export",), ("import", "-")])
def test_an_agent_may_not_export_or_import(relay: Relay, action: tuple[str, ...]) -> None:
    refused = relay("memory", *action, env=AGENT, check=False)
    assert refused.returncode == 1
    assert "an agent can use only its own memories" in refused.stderr


def test_an_untrusted_project_cannot_choose_the_backend(relay: Relay, home: Path) -> None:
    (home / "relay.toml").write_text(backend(home))
    result = relay("memory", "save", "hello")
    assert "[memory] ignored, because the file is not trusted" in result.stderr
    assert not (home / "notes.db").exists()
    assert relay("memory", "list", "--embedded").stderr == ""
    (home / "relay.config.py").write_text(
        'from relay import RelayConfig\nconfig = RelayConfig(memory={"promptOnEnd": True})\n'
    )
    relay("trust", "relay.toml")
    relay("trust", "relay.config.py")
    assert texts(relay) == ["hello"], "relay.config.py takes precedence over relay.toml"


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        (
            "[memory]\nbackend = 'mem'\n",
            3,
            'memory.backend must be "embedded", "mem0", "qdrant" or "custom", not \'mem\'. Did you mean',
        ),
        (
            "[memory]\n\nbackends = 'x'\n",
            4,
            "unknown setting 'backends'. Did you mean backend?",
        ),
        ("memory = 3\n", 2, "memory must be a dict"),
    ],
)
def test_an_error_in_relay_toml_saves_nothing_in_another_backend(
    relay: Relay, home: Path, table: str, line: int, message: str
) -> None:
    own = relay.home / "config" / "relay.toml"
    for file in (own, home / "relay.toml"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("idle_seconds = 5\n" + table)
        result = relay("memory", "save", "hello", check=False)
        assert result.returncode == 1
        assert f"{own}:{line}: {message}" in result.stderr
        assert "Traceback" not in result.stderr
    assert texts(relay, "--embedded") == []
    refused = relay("trust", "relay.toml", check=False)
    assert refused.returncode == 1
    assert f"relay.toml:{line}: {message}" in refused.stderr


def test_metadata_that_is_not_a_pair_is_rejected(relay: Relay) -> None:
    result = relay("memory", "save", "x", "--metadata", "nonsense", check=False)
    assert result.returncode == 2
    assert "--metadata is KEY=VALUE, not 'nonsense'." in result.stderr
