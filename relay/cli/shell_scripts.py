"""The completion scripts for bash, zsh and fish, generated from the levels of the command line.

Each walks the words before the cursor (`step`) to find the level, the number of its arguments so far, and the
kind of value that an option needs; then it lists what may come at the cursor (`wanted`). The names of agents
come from `relay __names`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.cli.command_line import Level

PASSED_ON = "wrap"
"""The command whose words after the first argument are not relay's."""


def bash(levels: Sequence[Level]) -> str:
    return f"""\
# bash completion for relay, made by `relay completion bash`.
{_walk(levels)}
_relay() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} level= value= kind= at=0 i
    local -a choices=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        _relay_step "${{COMP_WORDS[i]}}"
    done
    _relay_wanted "$cur"
    COMPREPLY=()
    case $kind in
        names) COMPREPLY=($(compgen -W "$("${{COMP_WORDS[0]}}" __names 2>/dev/null)" -- "$cur")) ;;
        programs) COMPREPLY=($(compgen -c -- "$cur")) ;;
        files) compopt -o default ;;
        words) COMPREPLY=($(compgen -W "${{choices[*]%%:*}}" -- "$cur")) ;;
    esac
}}

complete -F _relay relay
"""


def zsh(levels: Sequence[Level]) -> str:
    """Return the script for zsh; it works as a file in fpath and when sourced."""
    return f"""\
#compdef relay
# zsh completion for relay, made by `relay completion zsh`.
{_walk(levels)}
_relay() {{
    local cur=$PREFIX program=${{(Q)words[1]}} level= value= kind= at=0 word
    local -a before=("${{(@)words[2,CURRENT-1]}}")
    local -a choices=()
    for word in "${{(@)before}}"; do
        _relay_step "${{(Q)word}}"
    done
    _relay_wanted "$cur"
    case $kind in
        names) choices=(${{(f)"$("$program" __names 2>/dev/null)"}}); compadd -a choices ;;
        programs) _command_names -e ;;
        files) _files ;;
        words) _describe relay choices ;;
    esac
}}

if [[ $funcstack[1] == _relay ]]; then
    _relay "$@"
else
    compdef _relay relay
fi
"""


def fish(levels: Sequence[Level]) -> str:
    return f"""\
# fish completion for relay, made by `relay completion fish`.
function __relay_complete
    set -l cur (commandline -ct)
    set -l before (commandline -opc)
    set -l program $before[1]
    set -l level ''
    set -l value ''
    set -l kind nothing
    set -l words
    set -l at 0
    for word in $before[2..-1]
        if test "$level" = {PASSED_ON} -a $at -ge 1
            continue
        end
        if test -n "$value"
            set value ''
            continue
        end
        switch "$level:$word"
{_lines(_fish_steps(levels), 12)}
            case '*:-*'
            case '*'
                set at (math $at + 1)
        end
    end
    if test -n "$value"
        set kind $value
    else if string match -q -- '-*' "$cur"; and not test "$level" = {PASSED_ON} -a $at -ge 1
        set kind options
    else
        switch "$level:$at"
{_lines(_fish_wanted(levels), 12)}
        end
    end
    switch "$kind:$level"
{_lines(_fish_words(levels), 8)}
    end
    switch $kind
        case names
            $program __names 2>/dev/null
        case programs
            __fish_complete_command
        case files
            __fish_complete_path "$cur"
    end
end

complete -c relay -f -a '(__relay_complete)'
"""


SCRIPTS: dict[str, Callable[[Sequence[Level]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _walk(levels: Sequence[Level]) -> str:
    """Return the two functions that bash and zsh share."""
    return f"""
_relay_step() {{
    if [[ $level == {PASSED_ON} && $at -ge 1 ]]; then return; fi
    if [[ -n $value ]]; then value=; return; fi
    case "$level:$1" in
{_lines(_steps(levels), 8)}
        *:-*) ;;
        *) at=$((at + 1)) ;;
    esac
}}

_relay_wanted() {{
    if [[ -n $value ]]; then
        kind=$value
    elif [[ $1 == -* && ! ($level == {PASSED_ON} && $at -ge 1) ]]; then
        kind=options
    else
        case "$level:$at" in
{_lines(_wanted(levels), 12)}
            *) kind=nothing ;;
        esac
    fi
    case "$kind:$level" in
{_lines(_word_lists(levels), 8)}
    esac
}}
"""


_Words = Sequence[tuple[str, str]]


def _step_table(levels: Sequence[Level]) -> Iterator[tuple[list[str], str, str]]:
    """Yield (patterns LEVEL:WORD, the variable to set, its value)."""
    for level in levels:
        for word, _ in level.words:
            yield [f"{level.path}:{word}"], "level", f"{level.path} {word}".strip()
        for option in level.options:
            if option.kind is not None:
                yield [f"{level.path}:{flag}" for flag in option.flags], "value", _name(option.kind)


def _wanted_table(levels: Sequence[Level]) -> Iterator[tuple[str, str]]:
    """Yield (pattern LEVEL:NUMBER of the argument, its kind)."""
    for level in levels:
        if level.words:
            yield f"{level.path}:0", "below"
        for at, kind in enumerate(level.arguments):
            yield f"{level.path}:{at}", _name(kind)
        if level.repeats:
            yield f"{level.path}:*", _name(level.arguments[-1]) if level.path != PASSED_ON else "files"


def _word_table(levels: Sequence[Level]) -> Iterator[tuple[str, _Words]]:
    """Yield (pattern KIND:LEVEL, the words to choose from, with their help)."""
    choices: dict[str, tuple[str, ...]] = {}
    for level in levels:
        if level.words:
            yield f"below:{level.path}", level.words
        if level.options:
            flags = [(flag, option.help) for option in level.options for flag in option.flags]
            yield f"options:{level.path}", flags
        for kind in (*level.arguments, *(option.kind for option in level.options)):
            if isinstance(kind, tuple):
                choices[_name(kind)] = kind
    for name, words in choices.items():
        yield f"{name}:*", [(word, "") for word in words]


def _name(kind: str | tuple[str, ...]) -> str:
    return kind if isinstance(kind, str) else f"one-of-{'-'.join(kind)}"


def _steps(levels: Sequence[Level]) -> Iterator[str]:
    for patterns, variable, value in _step_table(levels):
        yield f"{'|'.join(map(_quoted, patterns))}) {variable}={_quoted(value)} ;;"


def _wanted(levels: Sequence[Level]) -> Iterator[str]:
    for pattern, kind in _wanted_table(levels):
        yield f"{_pattern(pattern)}) kind={_quoted(kind)} ;;"


def _word_lists(levels: Sequence[Level]) -> Iterator[str]:
    for pattern, words in _word_table(levels):
        described = " ".join(_quoted(f"{word}:{help}" if help else word) for word, help in words)
        yield f"{_pattern(pattern)}) kind=words choices=({described}) ;;"


def _fish_steps(levels: Sequence[Level]) -> Iterator[str]:
    for patterns, variable, value in _step_table(levels):
        yield f"case {' '.join(map(_fish_quoted, patterns))}\n    set {variable} {_fish_quoted(value)}"


def _fish_wanted(levels: Sequence[Level]) -> Iterator[str]:
    for pattern, kind in _wanted_table(levels):
        yield f"case {_fish_quoted(pattern)}\n    set kind {_fish_quoted(kind)}"


def _fish_words(levels: Sequence[Level]) -> Iterator[str]:
    for pattern, words in _word_table(levels):
        listed = " ".join(_fish_quoted(f"{word}\t{help}") for word, help in words)
        yield f"case {_fish_quoted(pattern)}\n    printf '%s\\n' {listed}"


def _pattern(text: str) -> str:
    """Return a `case` pattern: `text`, literal except for a star at its end."""
    return _quoted(text[:-1]) + "*" if text.endswith("*") else _quoted(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _lines(lines: Iterator[str], indent: int) -> str:
    return "\n".join(" " * indent + line for each in lines for line in each.split("\n"))
