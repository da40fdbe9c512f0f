"""relay.lazy_re compiles a pattern when it is first used."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import pytest

import relay
from relay import lazy_re


def test_a_pattern_is_compiled_at_its_first_use_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        re, "compile", lambda *given, real=re.compile: (compiled.append(given), real(*given))[1]
    )
    word = lazy_re.compile(r"(?P<it>[a-z]+)", re.IGNORECASE)
    assert word.pattern == r"(?P<it>[a-z]+)" and compiled == []
    found = word.search("1 Word")
    assert found is not None and found["it"] == "Word"
    assert [word.search(" ") for _ in range(3)] == [None] * 3
    assert compiled == [(r"(?P<it>[a-z]+)", re.IGNORECASE)]


def test_all_patterns_of_relay_compile() -> None:
    kind = type(lazy_re.compile(""))
    patterns = {}
    for module in pkgutil.walk_packages(relay.__path__, "relay."):
        if not module.name.endswith("__main__"):
            names = vars(importlib.import_module(module.name)).items()
            patterns |= {f"{module.name}.{name}": each for name, each in names if type(each) is kind}
    assert len(patterns) > 50
    for each in patterns.values():
        each.match  # noqa: B018 (compiles it)
