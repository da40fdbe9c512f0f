#!/usr/bin/env python3
"""Stop shell commands that are known to do harm before they run.

    PreToolUse on standard input  ->  the command  ->  its simple commands  ->  a reason, or nothing

This is a guard rail, not a fence.  It reads the command as a shell would, through sudo, sh -c and $(...), but
a blacklist is never complete: an agent that wants to can write a script and run that.  It keeps a merely
hasty agent from the classic accidents.  What must never happen needs a sandbox, or an account without the
rights to do it.
"""

import itertools
import json
import posixpath
import re
import shlex
import sys

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "fish"}
INTERPRETERS = SHELLS | {"python", "python3", "perl", "ruby", "node"}
DOWNLOADS = {"curl", "wget", "fetch"}
SYSTEM = {"/", "/Applications", "/Library", "/System", "/Users"}
SYSTEM |= {
    "/" + name for name in ("bin", "boot", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root")
}
SYSTEM |= {"/" + name for name in ("sbin", "srv", "sys", "usr", "var")}
DISK = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|md|dm-|mapper/)")

# Programs that run the rest of their command line, with their options that take a value.
RUNNERS = {"sudo": "ugpCDhRTU", "doas": "uC", "env": "uC", "nice": "n", "timeout": "ks", "xargs": "InPLds"}
RUNNERS |= dict.fromkeys(("command", "exec", "nohup", "time", "setsid", "builtin", "stdbuf", "ionice"), "")

HELD = re.compile("\ue000(\\d+)\ue001")  # stands for the n-th $(...), `...` or <(...)
HEREDOC = re.compile(r"<<-?[ \t]*['\"]?(\w+)")
ASSIGNMENT = re.compile(r"\w+=")
BOMB = re.compile(r"(:|\b\w{1,40})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}")
LONGEST = 128 * 1024  # Linux's limit for one argument; parsing must also finish in time


def find_harm(text, cwd, deep=0):
    """Return why the command line `text` must not run in the directory `cwd`; "" if it may."""
    if not text.strip():
        return ""
    if deep > 8:
        return "it is nested too deeply to be read"
    if len(text) > LONGEST:
        return "it is too long to be read; write a script, and run that"
    if BOMB.search(text):
        return "it is a fork bomb"
    text, bodies = take_heredocs(text.replace("\ue000", ""))
    text, inner = hold_substitutions(text)
    if len(inner) > 500:
        return "it has too many parts to be read; write a script, and run that"
    for each in inner:
        if why := find_harm(each, cwd, deep + 1):
            return why
    for pipeline in pipelines(text):
        fed = False  # by a download earlier in the pipeline
        for words in pipeline:
            program, arguments = unwrapped(words)
            code = read_as_code(program, arguments)
            held = HELD.findall(" ".join([program, *code]))
            if (fed and code == ["-"]) or any(downloads(inner[int(number)]) for number in held):
                who = "the shell" if HELD.search(program) else program
                return f"{who} would run what was just downloaded, unread; save it and look at it first"
            given = bodies if code == ["-"] and "<<" in arguments else [each for each in code if each != "-"]
            for each in given:
                whole = HELD.sub(lambda match: f"$({inner[int(match[1])]})", each)
                if why := find_harm(whole, cwd, deep + 1):
                    return why
            if why := known(program, arguments, cwd):
                return why
            if program == "cd":
                cwd = path(operands(arguments)[0] if operands(arguments) else "~", cwd)
            fed = fed or program in DOWNLOADS
    return ""


def known(program, arguments, cwd):
    """Return why a simple command must not run, or ""."""
    targets = [path(each, cwd) for each in operands(arguments)]
    vital = next((each for each in targets if each in SYSTEM or each == posixpath.expanduser("~")), "")
    flags = "".join(each for each in arguments if re.fullmatch("-[a-zA-Z]+", each))
    recursive = "r" in flags.lower() or "--recursive" in arguments
    if program == "rm" and recursive and vital:
        return f"it removes {vital} with everything in it"
    if program in {"chmod", "chown", "chgrp"} and ("R" in flags or "--recursive" in arguments) and vital:
        return f"it changes the rights of everything in {vital}"
    if program == "find" and vital and ("-delete" in arguments or {"rm", "/bin/rm"} & set(arguments)):
        return f"it removes what it finds in {vital}"
    if program.startswith("mkfs") or (program in {"wipefs", "fdisk", "sgdisk"} and "-l" not in arguments):
        return f"{program} destroys what is on a disk"
    written = [each[3:] for each in arguments if program == "dd" and each.startswith("of=")]
    written += [b for a, b in itertools.pairwise(arguments) if a in {">", ">>", ">|", "&>"}]
    if disk := next((each for each in written if DISK.match(each)), ""):
        return f"it overwrites the disk {disk}"
    return ""


def read_as_code(program, arguments):
    """Return what `program` runs as code: texts, "-" for its standard input, placeholders of <(...)."""
    if program == "eval":
        return [" ".join(arguments)]
    if program in {".", "source"}:
        return arguments[:1]
    if program not in INTERPRETERS:
        return []
    for place, word in enumerate(arguments):
        if word in {"-", "-s"} or word.startswith("<"):
            return ["-"]
        if word[:1] == "-" and word[-1:] in "ce" and not word.startswith("--"):
            return arguments[place + 1 : place + 2] if program in SHELLS else HELD.findall(word) or []
        if word == "-m":
            return []
        if word[:1] != "-":
            return [word] if HELD.search(word) else []  # a script: data is piped into it, not code
    return ["-"]


def unwrapped(words):
    """Return (program name, its arguments), without assignments, sudo and the like."""
    words = list(words)
    while words:
        if ASSIGNMENT.match(words[0]) or words[0] in {"{", "!", "then", "do", "else", "if", "while", "until"}:
            words.pop(0)
            continue
        program = posixpath.basename(words.pop(0))
        if program not in RUNNERS:
            return re.sub(r"^python3?\.\d+$", "python3", program), words
        while words and words[0][:1] == "-":
            option = words.pop(0)
            if len(option) == 2 and option[1] in RUNNERS[program] and words:
                words.pop(0)
        if program == "timeout" and words:
            words.pop(0)  # the duration
    return "", []


def pipelines(text):
    """Return the simple commands in `text`, each as its words: [[["curl", "-s", URL], ["sh"]], ...]."""
    found = [[[]]]
    for word in split(text.replace("\\\n", " ")):
        if word in {"|", "|&"}:
            found[-1].append([])
        elif set(word) <= set(";&|()\n") and word != "":
            found.append([[]])
        else:
            found[-1][-1].append(word)
    return [[words for words in each if words] for each in found if any(each)]


def split(text):
    """Split `text` into words and operators, without the quotes."""
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        return list(lexer)
    except ValueError:  # an unclosed quote
        return split(re.sub("['\"]", " ", text.rstrip("\\")))


def take_heredocs(text):
    """Return `text` without the bodies of its here-documents, and the bodies."""
    lines = text.split("\n")
    last = {line.strip(): number for number, line in enumerate(lines)}  # the last line that can end a body
    kept, bodies, at = [], [], 0
    while at < len(lines):
        kept.append(lines[at])
        for word in HEREDOC.findall(lines[at]):
            if last.get(word, -1) > at:
                end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == word)
                bodies.append("\n".join(lines[at + 1 : end]))
                at = end
        at += 1
    return "\n".join(kept), bodies


def hold_substitutions(text):
    """Replace each $(...), `...` and <(...) in `text` by a placeholder; return it and what they contained."""
    out, inner, quote, at = [], [], "", 0
    while at < len(text):
        two, one = text[at : at + 2], text[at]
        if one == "\\" and quote != "'":
            out.append(two)
            at += 2
        elif quote != "'" and (two == "$(" or (two == "<(" and not quote) or one == "`"):
            end = text.find("`", at + 1) if one == "`" else closing(text, at + 2)
            end = end if end > 0 else len(text)
            out.append(f"\ue000{len(inner)}\ue001")
            inner.append(text[at + (1 if one == "`" else 2) : end])
            at = end + 1
        else:
            if one in "'\"" and quote in ("", one):
                quote = "" if quote else one
            out.append(one)
            at += 1
    return "".join(out), inner


def closing(text, at):
    """Return the position of the parenthesis that closes the one around `at`; -1 if none does."""
    depth = 1
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return -1


def downloads(text):
    return any(unwrapped(words)[0] in DOWNLOADS for each in pipelines(text) for words in each)


def operands(arguments):
    return [each for each in arguments if each[:1] != "-" and not set(each) & set("<>")]


def path(word, cwd):
    """Return the directory that `word` means, without a trailing /*."""
    word = re.sub(r"^(~|\$HOME|\$\{HOME\})(?=/|$)", lambda _: posixpath.expanduser("~"), word)
    word = re.sub(r"(^|/)(\*|\.\*|\.\[!\.\]\*)$", r"\1", word) or "."
    return re.sub("^//", "/", posixpath.normpath(posixpath.join(cwd, word)))


def main():
    payload = json.load(sys.stdin)
    data = payload.get("data") or payload  # flat rules get {"event": ..., "data": {...}}, groups the data
    command = (data.get("tool_input") or {}).get("command") or ""
    if not isinstance(command, str):
        command = shlex.join(map(str, command))
    if why := find_harm(command, data.get("cwd") or "/nowhere"):
        answer = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": f"The guardrail stopped this command: {why}.",
        }
        print(json.dumps({"hookSpecificOutput": answer}))


if __name__ == "__main__":
    main()
