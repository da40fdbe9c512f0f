"""Print a script that completes relay's commands, options and agent names in your shell.

bash: add to ~/.bashrc          source <(relay completion bash)
zsh:  once                      relay completion zsh > "${fpath[1]}/_relay"
      or add to ~/.zshrc        source <(relay completion zsh)
fish: once                      relay completion fish > ~/.config/fish/completions/relay.fish

Run it again after you upgrade relay. It completes the names of agents that are running when you press Tab.
"""

from __future__ import annotations

import argparse

from relay.cli.shell_scripts import SCRIPTS


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=[*SCRIPTS], metavar="|".join(SCRIPTS), help="the shell")


def run(args: argparse.Namespace) -> int:
    from relay.cli.command_line import levels

    print(SCRIPTS[args.shell]([*levels()]), end="")
    return 0
