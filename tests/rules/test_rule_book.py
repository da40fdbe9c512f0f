"""Which rules are in force: files, trust, disabled rules, and the selection for an event (R12, R14)."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from relay.errors import HomeError
from relay.home import Home
from relay.hooks.trust import Trust
from relay.rules.event import RuleEvent
from relay.rules.rule_book import RuleBook, disabled, find, switch


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path / "user_home"))
    (tmp_path / "user_home").mkdir()
    return Home.from_env({"RELAY_HOME": str(tmp_path / "relay")}).ensure()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def write(path: Path, *commands: str, event: str = "Stop", **more: object) -> Path:
    rules = [{"type": "command", "command": command, **more} for command in commands]
    path.write_text(json.dumps({"hooks": {event: rules}}))
    return path


def trust(user_home: Home, path: Path) -> None:
    Trust(user_home).grant(path, path.read_bytes())


def commands(book: RuleBook) -> list[str]:
    return [rule.command for rule in book.rules]


def chosen(book: RuleBook, name: str = "Stop", **data: object) -> list[str]:
    return [rule.command for rule in book.select(RuleEvent(name, data))]


def test_several_files_form_one_set_of_rules_in_firing_order(user_home: Home, project: Path) -> None:
    """R14: the user's own come first, then the project's, then those named on the command line."""
    write(user_home.config / "hooks.json", "own", "own 2")
    trust(user_home, write(project / "hooks.json", "project"))
    named = [write(project / "b.json", "b"), write(project / "a.json", "a")]
    book = RuleBook.load(user_home, project, named)
    assert book.warnings == ()
    assert commands(book) == chosen(book) == ["own", "own 2", "project", "b", "a"]
    assert [rule.origin for rule in book.rules] == ["user", "user", "project", "named", "named"]


def test_without_files_there_are_no_rules_and_no_warnings(user_home: Home, project: Path) -> None:
    assert RuleBook.load(user_home, project) == RuleBook()


def test_the_rules_of_a_project_need_trust(user_home: Home, project: Path) -> None:
    """R12: the trust is for this exact content."""
    path = write(project / "hooks.json", "theirs")
    for _ in range(2):
        book = RuleBook.load(user_home, project)
        assert book.rules == ()
        (warning,) = book.warnings
        assert str(warning).startswith(f"{path}: is not trusted, so none of its rules applies.")
        assert f"`relay trust {path}`" in str(warning)
        trust(user_home, path)
        assert RuleBook.load(user_home, project).warnings == ()
        write(path, "theirs", "and more")


def test_a_file_named_on_the_command_line_needs_no_trust(user_home: Home, project: Path) -> None:
    """R12: the file is in force without trust, once, even if it is the project's own."""
    path = write(project / "hooks.json", "theirs")
    book = RuleBook.load(user_home, project, [path, path])
    assert (commands(book), book.warnings) == (["theirs"], ())
    assert book.rules[0].origin == "named"


def test_the_nearest_file_of_a_project_is_used(user_home: Home, project: Path) -> None:
    """R12: the search goes up to the folder with .git, but not above the user's home folder."""
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    assert find(inner) is None
    write(project.parent / "hooks.json", "outside")
    assert find(inner) is None
    write(project / "hooks.json", "root")
    assert find(inner) == project / "hooks.json"
    write(project / "a" / "hooks.json", "nearer")
    assert find(inner) == project / "a" / "hooks.json"
    assert find(Path.home()) is None


def test_a_file_found_twice_is_read_once(user_home: Home, project: Path) -> None:
    """R14: the file may be in relay's own folder, or behind a link."""
    own = write(user_home.config / "hooks.json", "own")
    assert commands(RuleBook.load(user_home, user_home.config, [own])) == ["own"]
    (project / "hooks.json").symlink_to(own)
    book = RuleBook.load(user_home, project)
    assert (commands(book), book.warnings) == (["own"], ())


def test_a_link_needs_trust_of_its_own(user_home: Home, project: Path) -> None:
    """R12, D1: for what it links to. Rules name scripts beside them, so those of a neighbour differ."""
    real = write(project / "real.json", "real")
    (project / "hooks.json").symlink_to(real)
    trust(user_home, real)
    assert commands(RuleBook.load(user_home, project)) == []
    trust(user_home, project / "hooks.json")
    assert commands(RuleBook.load(user_home, project)) == ["real"]
    write(real, "other")
    assert commands(RuleBook.load(user_home, project)) == []


def unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    path.write_text("{}")
    path.chmod(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.mkdir, "cannot be read: "),
        (os.mkfifo, "cannot be read: it is not a regular file"),
        (lambda path: path.symlink_to("nowhere"), "cannot be read: No such file"),
        (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels of symbolic links"),
        (unreadable, "cannot be read: Permission denied"),
        (lambda path: path.write_bytes(b" " * (3 << 20)), "it has more than 1 MB"),
        (lambda path: path.write_text("no"), "it is not JSON"),
    ],
    ids=["directory", "fifo", "dangling", "loop", "unreadable", "huge", "text"],
)
def test_an_unreadable_file_leaves_the_others_in_force(user_home: Home, project: Path, make, message) -> None:
    """R12, R14"""
    make(user_home.config / "hooks.json")
    book = RuleBook.load(user_home, project, [write(project / "x.json", "x")])
    (warning,) = book.warnings
    assert str(warning).startswith(f"{user_home.config / 'hooks.json'}")
    assert message in str(warning)
    assert commands(book) == ["x"]
    assert not [
        link for link in Path("/proc/self/fd").glob("*") if link.resolve() == user_home.config / "hooks.json"
    ]


def test_an_unreadable_project_file_is_reported(user_home: Home, project: Path) -> None:
    (project / "hooks.json").mkdir()
    (warning,) = RuleBook.load(user_home, project).warnings
    assert "hooks.json: cannot be read" in str(warning)


def test_a_missing_named_file_is_reported(user_home: Home, project: Path) -> None:
    (warning,) = RuleBook.load(user_home, project, [project / "gone.json"]).warnings
    assert "gone.json: cannot be read: No such file or directory" in str(warning)


def test_rules_are_selected_by_event_and_matcher(user_home: Home, project: Path) -> None:
    """R14, R19, R37"""
    for event in ("PreToolUse", "PostToolUseFailure"):
        write(project / f"{event}.json", f"bash after {event}", event=event, matcher="Bash")
    write(project / "any.json", "any", event="PreToolUse")
    book = RuleBook.of(user_home, sorted(project.glob("*.json")))
    assert chosen(book, "PreToolUse", tool_name="run_shell_command") == ["bash after PreToolUse", "any"]
    assert chosen(book, "PreToolUse", tool_name="Read") == ["any"]
    assert chosen(book, "PostToolUseFailure", tool_name="exec_command") == ["bash after PostToolUseFailure"]
    assert chosen(book, "PostToolUse", tool_name="Bash") == []
    assert chosen(book, "Unheard") == []


def test_identical_rules_run_once(user_home: Home, project: Path) -> None:
    """R14: files and matchers do not matter; a rule in a group gets another payload, so it differs."""
    write(project / "a.json", "same", event="PreToolUse", matcher="Bash")
    write(project / "b.json", "same", "other", event="PreToolUse", timeout=3)
    group = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "same"}]}]}}
    (project / "c.json").write_text(json.dumps(group))
    book = RuleBook.of(user_home, sorted(project.glob("*.json")))
    assert chosen(book, "PreToolUse", tool_name="Bash") == ["same", "other", "same"]
    for tool, timeouts in (("Bash", [60, 3, 60]), ("Read", [3, 3, 60])):  # the first of those that match
        found = book.select(RuleEvent("PreToolUse", {"tool_name": tool}))
        assert [rule.timeout for rule in found] == timeouts


def test_a_background_rule_does_not_replace_an_identical_guard(user_home: Home, project: Path) -> None:
    """R14: a background rule decides nothing."""
    write(project / "a.json", "guard", event="PreToolUse", **{"async": True})
    write(project / "b.json", "guard", event="PreToolUse")
    found = RuleBook.of(user_home, sorted(project.glob("*.json"))).select(RuleEvent("PreToolUse"))
    assert [rule.background for rule in found] == [True, False]


def test_a_disabled_rule_is_not_selected(user_home: Home, project: Path) -> None:
    path = write(project / "a.json", "one", "two", "two")
    one, two, again = RuleBook.of(user_home, [path]).rules
    switch(user_home, [one.id, two.id], off=True)
    book = RuleBook.of(user_home, [path])
    assert [book.enabled(rule) for rule in book.rules] == [False, False, True]
    assert [rule.id for rule in book.select(RuleEvent("Stop"))] == [again.id]
    switch(user_home, [one.id], off=False)
    assert [rule.id for rule in RuleBook.of(user_home, [path]).select(RuleEvent("Stop"))] == [
        one.id,
        again.id,
    ]


def test_disabled_rules_are_stored_in_a_private_file(user_home: Home) -> None:
    assert disabled(user_home) == frozenset()
    switch(user_home, ["b", "a"], off=True)
    switch(user_home, ["c"], off=True)
    assert disabled(user_home) == {"a", "b", "c"}
    assert stat.S_IMODE(user_home.disabled_rules.stat().st_mode) == 0o600
    assert sorted(path.name for path in user_home.state.iterdir()) == [
        "disabled-rules.json",
        "disabled-rules.lock",
    ]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"disabled": 3}', '{"disabled": [3]}', "[" * 5000, "\xff"]
)
def test_every_rule_is_enabled_if_the_list_of_disabled_rules_is_corrupt(
    user_home: Home, project: Path, content: str
) -> None:
    """No guard is lost, and the user gets a warning."""
    write(user_home.config / "hooks.json", "guard")
    user_home.disabled_rules.write_text(content, "latin-1")
    book = RuleBook.load(user_home, project)
    assert chosen(book) == ["guard"]
    assert f"{user_home.disabled_rules} cannot be read, so every rule is on" in str(book.warnings)
    with pytest.raises(HomeError, match="Delete it"):
        switch(user_home, ["x"], off=True)


def reload(user_home: Home, project: Path, last: RuleBook, *named: Path) -> tuple[list[str], str]:
    """Return the commands in force after rereading the files, and the messages."""
    book = RuleBook.load(user_home, project, named, last=last)
    return commands(book), " ".join(str(warning) for warning in book.warnings)


KEEPS_RULES = "The rules that were loaded from it before stay in force."


def test_the_rules_of_a_project_stay_in_force_when_its_file_is_no_longer_trusted(
    user_home: Home, project: Path
) -> None:
    """R12: a program that writes to the file, such as the agent, must not be able to remove its guard."""
    path = write(project / "hooks.json", "guard")
    trust(user_home, path)
    last = RuleBook.load(user_home, project)
    write(path, "theirs")
    now, message = reload(user_home, project, last)
    assert now == ["guard"]
    assert message == (
        f"{path}: is not trusted in its current form. {KEEPS_RULES} "
        f"Read it, then `relay trust {path}` and `relay hooks reload`."
    )
    again = RuleBook.load(user_home, project, last=last)
    assert reload(user_home, project, again) == (now, message)  # and again on every reload
    trust(user_home, path)
    assert reload(user_home, project, again) == (["theirs"], "")


def test_a_nearer_untrusted_file_removes_no_guard(user_home: Home, project: Path) -> None:
    """R12"""
    trust(user_home, write(project / "hooks.json", "guard"))
    (project / "a").mkdir()
    last = RuleBook.load(user_home, project / "a")
    nearer = write(project / "a" / "hooks.json", "theirs")
    assert reload(user_home, project / "a", last)[0] == ["guard"]
    trust(user_home, nearer)
    now, message = reload(user_home, project / "a", last)
    assert now == ["theirs"]
    assert f"{project / 'hooks.json'}: is no longer the nearest. No longer active: 1 rule" in message


@pytest.mark.parametrize(
    "content",
    [
        *('{"hooks": {"Stop": [}', "", "\xff", " " * (2 << 20), '"no"', '[{"type": "command"}]'),
        *('{"hooks": [{"type": "command"}]}', '{"PreToolUse": []}', '{"hook": {"PreToolUse": []}}'),
    ],
    ids=["truncated", "empty", "not UTF-8", "huge", "text", "list", "hooks is a list", "no hooks", "hook"],
)
@pytest.mark.parametrize("origin", ["user", "named", "project"])
def test_the_rules_of_a_file_that_became_invalid_stay_in_force(
    user_home: Home, project: Path, content: str, origin: str
) -> None:
    """R12: so do the others, in their order."""
    paths = {
        "user": user_home.config / "hooks.json",
        "project": project / "hooks.json",
        "named": project / "n",
    }
    for each, path in paths.items():
        write(path, each, f"{each} 2")
    trust(user_home, paths["project"])
    last = RuleBook.load(user_home, project, [paths["named"]])
    paths[origin].write_text(content, "latin-1")
    trust(user_home, paths["project"])
    now, message = reload(user_home, project, last, paths["named"])
    assert now == ["user", "user 2", "project", "project 2", "named", "named 2"]
    assert message.startswith(str(paths[origin])) and message.endswith(KEEPS_RULES)
    assert KEEPS_RULES not in reload(user_home, project, RuleBook(), paths["named"])[1]


def test_a_misspelt_rule_does_not_replace_the_one_before(user_home: Home, project: Path) -> None:
    """B3: the guard would be gone."""
    path = write(user_home.config / "hooks.json", "guard")
    last = RuleBook.load(user_home, project)
    path.write_text(path.read_text().replace('"command":', '"comand":'))
    now, message = reload(user_home, project, last)
    assert now == ["guard"]
    assert "the command is missing" in message and message.endswith(KEEPS_RULES)
    again = RuleBook.again(RuleBook.load(user_home, project, last=last).sources)
    assert commands(again) == ["guard"]


def test_the_rules_of_a_file_that_became_unreadable_stay_in_force(user_home: Home, project: Path) -> None:
    path = write(user_home.config / "hooks.json", "guard")
    last = RuleBook.load(user_home, project)
    path.unlink()
    path.mkdir()
    now, message = reload(user_home, project, last)
    assert (now, "cannot be read" in message, KEEPS_RULES in message) == (["guard"], True, True)


@pytest.mark.parametrize(
    "content",
    ["{}", '{"hooks": {}}', '{"hooks": null}', '{"hooks": []}', '{"hooks": {"Stop": []}}', '{"model": "x"}'],
)
def test_emptying_a_file_removes_its_rules_with_a_warning(
    user_home: Home, project: Path, content: str
) -> None:
    """R12"""
    path = write(user_home.config / "hooks.json", "guard", "guard 2")
    last = RuleBook.load(user_home, project)
    path.write_text(content)
    now, message = reload(user_home, project, last)
    assert now == []
    text = "no longer has rules. No longer active: 2 rules that this session had loaded from it."
    assert f"{path}: {text}" in message


@pytest.mark.parametrize("origin", ["user", "named"])
def test_deleting_a_file_removes_its_rules_with_a_warning(
    user_home: Home, project: Path, origin: str
) -> None:
    """R12: the warning appears once."""
    path = write(user_home.config / "hooks.json" if origin == "user" else project / "n", "guard")
    named = [] if origin == "user" else [path]
    last = RuleBook.load(user_home, project, named)
    path.unlink()
    now, message = reload(user_home, project, last, *named)
    assert now == []
    assert f"{path}: is gone. No longer active: 1 rule that this session had loaded from it." in message
    assert "is gone" not in reload(user_home, project, RuleBook(), *named)[1]


def test_disabled_rules_are_updated_without_rereading_the_files(user_home: Home, project: Path) -> None:
    """R14: the files may have changed since."""
    path = write(user_home.config / "hooks.json", "one", "two")
    book = RuleBook.load(user_home, project)
    switch(user_home, [book.rules[0].id], off=True)
    path.write_text("{}")
    updated = book.switched(user_home)
    assert (updated.rules, chosen(updated), chosen(book)) == (book.rules, ["two"], ["one", "two"])
    user_home.disabled_rules.write_text("x")
    for _ in range(2):
        updated = updated.switched(user_home)
        assert (chosen(updated), len(updated.warnings)) == (["one", "two"], 1)
    user_home.disabled_rules.unlink()
    assert updated.switched(user_home).warnings == ()


def test_a_guard_with_an_undecided_matcher_runs_and_is_reported_once(user_home: Home, project: Path) -> None:
    """R20: otherwise a long text would get around it."""
    path = write(project / "a.json", "guard", event="PreToolUse", matcher={"tool_input.command": "*rm -rf*"})
    book = RuleBook.of(user_home, [path])
    reported: list[str] = []
    event = RuleEvent("PreToolUse", {"tool_name": "Bash", "tool_input": {"command": "x" * (2 << 20)}})
    for _ in range(2):
        assert [rule.command for rule in book.select(event, reported.append)] == ["guard"]
    (text,) = reported
    assert text.startswith(f"{path}:1: PreToolUse: the text to match has 2097152 characters")
    assert text.endswith("The rule runs, because it may be intended.")


def test_a_rule_book_is_written_as_json(user_home: Home, project: Path) -> None:
    path = write(project / "a.json", "python3 /srv/x.py -a", event="PreToolUse", matcher="Bash")
    (rule,) = RuleBook.of(user_home, [path]).rules
    assert json.loads(json.dumps(RuleBook.of(user_home, [path]).public())) == {
        "rules": [
            {
                "id": rule.id,
                "name": "x.py",
                "event": "PreToolUse",
                "type": "command",
                "shape": "flat",
                "matcher": "Bash",
                "what": "python3 /srv/x.py -a",
                "timeout": 60.0,
                "async": False,
                "file": str(path),
                "line": 1,
                "origin": "named",
                "enabled": True,
            }
        ],
        "warnings": [],
    }
