"""Completion in the shells themselves: each is started, reads our script, and is asked what follows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.foreign import need

BIN = Path(sys.executable).parent
QUESTIONS = {
    "barnabas topi": "topic",
    "barnabas topic cr": "create",
    "barnabas topic create --par": "--partitions",
    "barnabas kafka verifiable-c": "verifiable-consumer",
}
BASH = """
eval "$(barnabas completion bash)"
while read -r line; do
    COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _barnabas 2> /dev/null; echo "${COMPREPLY[*]}"
done
"""
FISH = """
barnabas completion fish | source
while read line; complete -C "$line"; end
"""
# What is typed ends with a tab and a newline: only a completed command is one that lacks its argument.
ZSH = r"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=">"; autoload -Uz compinit; compinit -u -D; eval "$(barnabas completion zsh)"; echo REA''DY'
zpty -r z out '*READY*'
zpty -w -n z $'barnabas topic cr\t\n'
zpty -r z out '*Missing argument*'
print -r -- "$out"
zpty -d z
"""


def shell(name: str, script: str, stdin: str = "") -> str:
    need("barnabas") if not (BIN / "barnabas").exists() else None
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb"}
    done = subprocess.run(
        [need(name), *flags, "-c", script],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
    )
    return done.stdout


@pytest.mark.parametrize(("name", "script"), [("bash", BASH), ("fish", FISH)], ids=["bash", "fish"])
def test_what_follows(name: str, script: str) -> None:
    answers = shell(name, script, "".join(f"{line}\n" for line in QUESTIONS))
    assert answers.split() == list(QUESTIONS.values())


def test_a_tab_in_zsh() -> None:
    assert "barnabas topic create: Missing argument" in shell("zsh", ZSH)
