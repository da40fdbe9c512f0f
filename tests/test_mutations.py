"""The mutations apply to the current code, and name existing tests. `make test-mutations` runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools.mutations import PATCHES, ROOT, Mutation, read, shared, table

MUTATIONS = [read(path) for path in sorted(PATCHES.glob("*.patch"))]
PACKAGES = {path.parent.name for path in (ROOT / "relay").glob("*/__init__.py")}


def test_every_package_has_a_mutation() -> None:
    assert len(MUTATIONS) >= 40
    mutated = {
        parts[1] for mutation in MUTATIONS for file in mutation.files if len(parts := Path(file).parts) > 2
    }
    assert mutated >= PACKAGES


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_applies_to_the_tree(mutation: Mutation) -> None:
    run = subprocess.run(
        ["git", "apply", "--check", mutation.path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert all(file.startswith(("relay/", "patterns/")) for file in mutation.files)


def test_a_mutation_is_small_and_names_tests(subtests: pytest.Subtests) -> None:
    for mutation in MUTATIONS:
        with subtests.test(mutation.name):
            for file, _, function in (test.partition("::") for test in mutation.tests):
                assert (ROOT / file).exists()
                assert not function or f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")
            changed = re.findall(
                r"^[-+](?![-+]{2} )", mutation.path.read_text(encoding="utf-8"), re.MULTILINE
            )
            assert 1 <= len(changed) <= 10  # five lines, each removed and added


def test_the_readme_lists_every_mutation() -> None:
    listed = re.findall(
        r"^\| ([a-z0-9-]+) \|", (PATCHES / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert listed == ["mutation", *(mutation.name for mutation in MUTATIONS)]


def test_a_patch_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.patch"
    path.write_text("--- a/relay/names.py\n+++ b/relay/names.py\n")
    with pytest.raises(ValueError, match=r"must begin with a sentence"):
        read(path)


def test_the_table_shows_unnoticed_mutations() -> None:
    one, other = MUTATIONS[:2]
    rows = list(table({one: {"tests/test_b.py::test_b", "tests/test_a.py::test_a"}, other: set()}))
    assert rows[1:] == [f"| {one.name} | 2 | `tests/test_a.py::test_a` |", f"| {other.name} | **none** |  |"]


def test_functions_that_never_noticed_a_mutation_alone_are_listed() -> None:
    noticed = {
        "first": {"f.py::a[1]", "f.py::a[2]"},
        "second": {"f.py::a[1]", "f.py::b"},
        "third": set[str](),
    }
    assert [row.split() for row in shared(noticed, verbose=True)][1:] == [["1", "f.py"], ["f.py::b"]]
