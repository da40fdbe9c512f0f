"""docs/ARCHITECTURE.md is accurate, and the code follows its rules.

python tests/test_architecture.py      lists every event and question: its package, its meaning, its handlers
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import tomli

from session.fake_agent import FakeAgent
from support import Relay, session_patch

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")

MOST_ATTRIBUTES = 12
VALUES = {"Options"}  # not a dataclass, which would cost 5 ms before the agent starts

DOCUMENTED = {"os._exit", "posix._exit", "sys._current_frames", "ctypes._SimpleCData"}
"""Names that Python documents although they begin with an underscore; like those of named tuples."""

OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace"}

UNAVOIDABLE = {
    # aiomqtt's own client of paho, which alone tells that a connection is lost before the login's answer.
    ("transport/mqtt.py", "self._client._client"),
    # `_socket.socket` has no other accept(2); the module `socket` costs the shim its import.
    ("shim/control.py", "self._listener._accept"),
    # argparse has no public list of a parser's arguments.
    ("cli/command_line.py", "parser._actions"),
    ("cli/command_line.py", "argparse._SubParsersAction"),
    ("cli/command_line.py", "action._choices_actions"),
}

QUESTION_WORDS = {"What", "Whether", "How", "Who", "Whom", "Whose", "Where", "Why", "Which", "That"}


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module of relay."""
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "relay").rglob("*.py"))}


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """Return all nodes of each module of relay."""
    return {path: list(ast.walk(tree)) for path, tree in trees().items()}


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Free half a million nodes, which each garbage collection would visit."""
    yield
    trees.cache_clear()
    nodes.cache_clear()


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path, found in nodes().items():
        yield from ((path, node) for node in found if isinstance(node, ast.ClassDef))


def words(nodes: list[ast.expr]) -> list[str]:
    return [ast.unparse(node) for node in nodes]


def features() -> dict[str, list[str]]:
    """Return the modules that handle each kind of event, or answer each kind of question."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, all_nodes in nodes().items():
        for node in all_nodes:
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) in {"handles", "answers"}:
                    for kind in words(mark.args):
                        found[kind.split(".")[-1]].add(path.stem)
    return {kind: sorted(stems) for kind, stems in found.items()}


class Listed(NamedTuple):
    """An event, or a question (`?`): the module that defines it, its meaning, the modules that handle it."""

    where: str
    name: str
    meaning: str
    handlers: list[str]


@cache
def listed() -> list[Listed]:
    """Return every event and question, by module."""
    handled, found = features(), []
    for path, node in classes():
        bases = words(node.bases)
        question = any(base.startswith("Question[") for base in bases)
        if question or "Event" in bases:
            meaning = (ast.get_docstring(node) or "").split("\n")[0]
            where = "/".join(path.relative_to(ROOT / "relay").with_suffix("").parts)
            found.append(Listed(where, node.name + "?" * question, meaning, handled.get(node.name, [])))
    return sorted(found, key=lambda each: each.where)


def section(title: str) -> str:
    """Return the part of the page below a heading of the second level."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_event_has_a_meaning_and_a_handler() -> None:
    assert len(listed()) > 100
    bare = [each.name for each in listed() if not (each.meaning.endswith((".", "?")) and each.handlers)]
    assert bare == ["HandlerEvent"]  # its subclasses are the events of handlers


def test_no_feature_asks_what_an_earlier_session_has_seen() -> None:
    """The core restores that before the features begin, and tells them once (relay.session.restoration)."""
    asks = {"replaying", "restoring", "resumed", "again"}
    found = []
    for path, all_nodes in nodes().items():
        if path.parent.name == "features":
            called = {node.func for node in all_nodes if isinstance(node, ast.Call)}
            asked = [node for node in all_nodes if isinstance(node, ast.Attribute) and node.attr in asks]
            found += [(path.stem, ast.unparse(node)) for node in asked if node not in called]
            if "replay" in path.read_text().replace("`relay replay`", ""):
                found.append((path.stem, "replay"))
    for _, node in classes():
        if any(base == "Event" or base.endswith(("Ended", "Read", "Words")) for base in words(node.bases)):
            fields = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
            found += [(node.name, each) for each in sorted(fields & asks)]
    assert found == []


def test_every_module_named_on_the_page_exists() -> None:
    diagrams = "\n".join(re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]*\.?[a-z_]*)`", PAGE)
    drawn = re.findall(r"(?<![\w/])((?:[a-z_]+/)+[a-z_]+)", diagrams)
    assert len(named) > 40 and len(drawn) > 80

    def exists(name: str) -> bool:
        return any((top / each).exists() for top in (ROOT, ROOT / "relay") for each in (name, f"{name}.py"))

    assert [name for name in (*named, *drawn) if not exists(name)] == []


def test_the_table_of_layers_is_the_contract() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    _, *layers = project["tool"]["importlinter"]["contracts"][0]["layers"]  # without relay.__main__
    rows = re.findall(r"^\| (`.*?`) \|", section("Layers"), re.MULTILINE)
    wanted = [re.findall(r"relay\.(\w+)", layer) for layer in layers]
    assert [re.findall(r"`(\w+)`", row) for row in rows] == wanted
    packages = {path.parent.name for path in (ROOT / "relay").glob("*/__init__.py")}
    assert packages <= {name for layer in wanted for name in layer}


def test_a_hook_passes_at_most_a_dozen_modules() -> None:
    assert 1 < len(re.findall(r"^ +\d+ [a-z_]+/", section("A hook event"), re.MULTILINE)) <= 12


def test_the_example_of_a_first_change_works(relay: Relay) -> None:
    """The example is one module and one line."""
    module, line = re.findall(r"```python\n(.*?)```", section("A first change"), re.DOTALL)
    patch = session_patch(
        "from relay.session.features import FEATURES\n"
        + module.replace("from __future__ import annotations\n", "")
        + "\nFEATURES |= {"
        + line
        + "}\n"
    )
    alice = FakeAgent(relay, "Alice").wrap(env=patch)
    alice.say("All 12 tests passed.")
    alice.notice("the tests pass.")
    relay("reload", "Alice", env=patch)
    alice.say("@memory:save the new session runs")
    alice.receives("Saved to memory")
    assert [each["text"] for each in alice.events("notice")].count("the tests pass.") == 1
    alice.exit()


def test_features_that_may_refuse_a_delivery_are_asked_first(relay: Relay) -> None:
    """Otherwise the ledger would mark a refused message as being typed."""
    refuses = {
        node.name: any(isinstance(each, ast.Raise) for each in ast.walk(method))
        for _, node in classes()
        for method in node.body
        if "answers(MayBegin)" in words(getattr(method, "decorator_list", []))
    }
    patch = session_patch(
        "from relay.eventbus import handles\n"
        "from relay.injection.events import MayBegin\n"
        "from relay.lifecycle import SessionBegan\n"
        "from relay.session.features import FEATURES\n"
        "from relay.terminal.events import Notify\n"
        "class Order:\n"
        "    def __init__(self, core):\n"
        "        self.bus = core.bus\n"
        "    @handles(SessionBegan)\n"
        "    def begin(self, _):\n"
        "        asked = [type(each.__self__).__name__ for each in self.bus._answerers[MayBegin]]\n"
        "        self.bus.publish(Notify('asked in order: ' + ' '.join(asked)))\n"
        "FEATURES['order'] = Order"
    )
    alice = FakeAgent(relay, "Alice").wrap(options=("--restart", "on-failure"), env=patch)
    order = alice.notice("asked in order: ").partition(": ")[2].split()
    assert sorted(order) == sorted(refuses)
    refusing = {name for name, raises in refuses.items() if raises}
    assert refusing and set(order[: len(refusing)]) == refusing, order
    alice.exit()


def test_only_values_have_more_than_a_dozen_attributes() -> None:
    large = {}
    for _, node in classes():
        if node.name in VALUES or any("dataclass" in mark for mark in words(node.decorator_list)):
            continue
        names = {
            target.attr
            for target in ast.walk(node)
            if isinstance(target, ast.Attribute)
            and isinstance(target.ctx, ast.Store)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        }
        if len(names) > MOST_ATTRIBUTES:
            large[node.name] = len(names)
    assert large == {}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(module: list[ast.AST]) -> set[str]:
    """Return the names of the functions, classes, variables and attributes that a module defines."""
    found = set()
    for node in module:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name("self")):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found


def private_uses(module: list[ast.AST], own: set[str], everywhere: set[str]) -> Iterator[str]:
    """Yield what a module uses of others that begins with an underscore.

    own, everywhere: the names that the module, and all of relay, define. An attribute of an attribute has an
    unknown owner, so a name that relay defines elsewhere proves nothing there, nor behind `super()`.
    """
    for node in module:
        match node:
            case ast.ImportFrom(names=names):
                yield from (each.name for each in names if is_private(each.name))
            case ast.Attribute(attr=name, value=ast.Name("self" | "cls")):
                if is_private(name) and name not in everywhere:
                    yield ast.unparse(node)
            case ast.Attribute(attr=name, value=of) if is_private(name) and name not in OF_NAMED_TUPLES:
                unknown = isinstance(of, ast.Attribute) or ast.unparse(of) == "super()"
                if unknown or name not in own:
                    yield ast.unparse(node)


def test_no_private_attribute_of_a_library_is_used() -> None:
    """It may change with any release. A subclass of a library's class counts, too."""
    own = {path: own_names(module) for path, module in nodes().items()}
    everywhere = set().union(*own.values())
    found = {
        (str(path.relative_to(ROOT / "relay")), use)
        for path, module in nodes().items()
        for use in private_uses(module, own[path], everywhere)
        if use not in DOCUMENTED
    }
    assert found == UNAVOIDABLE


def test_public_class_names_are_unique() -> None:
    names = Counter(node.name for _, node in classes() if not node.name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_code_does_not_refer_to_a_plan() -> None:
    """Comments state a reason, not its number in a plan."""
    pattern = re.compile(r"\bR\d{1,2}\b|\bdesign, section\b|\bDESIGN\b|\bREQUIREMENTS\b|\bFINDINGS\b")
    found = [
        f"{path.name}: {line.strip()}"
        for path in trees()
        for line in path.read_text().splitlines()
        if pattern.search(line)
    ]
    assert found == []


def test_no_public_docstring_begins_with_a_question_word() -> None:
    questions = []
    for path, module in nodes().items():
        for node in module:
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name[0] != "_"
            ):
                first = (ast.get_docstring(node) or "").split(maxsplit=1)[:1]
                questions += [f"{path.name}: {node.name}" for word in first if word in QUESTION_WORDS]
    assert questions == []


def test_no_regular_expression_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 matches too little (python/cpython#106052)."""
    possessive = re.compile(r"\)(?:\{[\d,]+\}|[*+?])\+|\(\?>")
    found = [path.name for path in trees() if possessive.search(path.read_text(encoding="utf-8"))]
    assert found == []


if __name__ == "__main__":
    for each in listed():
        print(f"{each.where}: {each.name}: {each.meaning} {', '.join(each.handlers) or 'nobody'}")
