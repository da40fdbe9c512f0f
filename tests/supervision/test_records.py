"""The records of agents: one file each, changed by several processes, possibly damaged."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.home import Home
from relay.supervision.records import AgentRecord, Records
from relay.supervision.restart import RestartHistory
from relay.supervision.states import Phase


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(Home.from_env({"RELAY_HOME": str(tmp_path)}).ensure())


def test_a_record_is_read_as_it_was_written(records: Records) -> None:
    record = AgentRecord(
        "Bob",
        "web",
        "claude",
        ("claude", "--model", "x y"),
        {"task": "täsk"},
        "/tmp/\udcff",
        wanted="down",
        by="stop",
        phase=Phase.BACKOFF,
        reason="exited with 1",
        exit_code=1,
        next_try=12.5,
        history=RestartHistory((1.0, 2.0), 3),
    )
    records.change("web", "Bob", lambda _: record)
    assert records.get("web", "Bob") == record
    assert records.get("WEB", "bob") == record
    assert records.all() == records.all("web") == [record]
    assert records.all("other") == []
    records.forget("web", "Bob")
    records.forget("web", "Bob")
    assert records.get("web", "Bob") is None


def test_a_record_is_private(records: Records) -> None:
    records.change("web", "Bob", lambda record: record)
    assert records.path("web", "Bob").stat().st_mode & 0o777 == 0o600


@given(st.binary(max_size=200))
def test_a_damaged_record_raises_no_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    records = Records(Home.from_env({"RELAY_HOME": str(tmp_path_factory.mktemp("home"))}).ensure())
    path = records.path("web", "Bob")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    records.get("web", "Bob")
    records.all()
    assert records.change("web", "Bob", lambda record: record).name == "Bob"


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"name": "Bob", "team": "web", "phase": "dancing"}', '{"name": 1, "history": 2}', "{"],
)
def test_a_file_that_is_not_a_record_is_ignored(records: Records, text: str) -> None:
    path = records.path("web", "Bob")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert records.get("web", "Bob") is None


def test_unknown_fields_are_ignored(records: Records) -> None:
    path = records.path("web", "Bob")
    path.parent.mkdir(parents=True)
    path.write_text('{"name": "Bob", "team": "web", "of_tomorrow": 1}')
    assert records.get("web", "Bob") == AgentRecord("Bob", "web")


def _count(root: str, times: int) -> None:
    records = Records(Home.from_env({"RELAY_HOME": root}))
    for _ in range(times):
        records.change("web", "Bob", lambda record: replace(record, restarts=record.restarts + 1))


def test_no_change_is_lost_between_processes(tmp_path: Path) -> None:
    Home.from_env({"RELAY_HOME": str(tmp_path)}).ensure()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_count, args=(str(tmp_path), 50)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    record = Records(Home.from_env({"RELAY_HOME": str(tmp_path)})).get("web", "Bob")
    assert record is not None
    assert record.restarts == 100
