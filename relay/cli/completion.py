"""Print a script that completes relay's commands, options and agent names in your shell.

bash: add to ~/.bashrc          source <(relay completion bash)
zsh:  once                      relay completion zsh > "${fpath[1]}/_relay"
      or add to ~/.zshrc        source <(relay completion zsh)
fish: once                      relay completion fish > ~/.config/fish/completions/relay.fish

It completes the names of agents that are running when you press Tab.
"""

from __future__ import annotations

import argparse

# Each asks `relay __complete WORD...` (command_line.py), whose last word is the one to complete.

_BASH = """\
# bash completion for relay, made by `relay completion bash`.
_relay() {
    local cur=${COMP_WORDS[COMP_CWORD]} line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files) compopt -o default ;;
            :programs) COMPREPLY=($(compgen -c -- "$cur")) ;;
            "$cur"*) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}

complete -F _relay relay
"""

_ZSH = """\
#compdef relay
# zsh completion for relay, made by `relay completion zsh`.
_relay() {
    local line
    local -a choices=()
    for line in "${(@f)$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
        case $line in
            :files) _files ;;
            :programs) _command_names -e ;;
            ?*) choices+=("${line/$'\\t'/:}") ;;
        esac
    done
    (( $#choices )) && _describe relay choices
}

if [[ $funcstack[1] == _relay ]]; then
    _relay "$@"
else
    compdef _relay relay
fi
"""

_FISH = """\
# fish completion for relay, made by `relay completion fish`.
function __relay_complete
    set -l words (commandline -opc)
    for line in ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :programs
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end

complete -c relay -f -a '(__relay_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=[*_SCRIPTS], metavar="|".join(_SCRIPTS), help="the shell")


def run(args: argparse.Namespace) -> int:
    print(_SCRIPTS[args.shell], end="")
    return 0
