"""How a script is started as a file: by the kernel where it can, else by the interpreter that its first line names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from remuda.node.child.launch import Launch
    from remuda.node.journal import NodeLog

SHELL = "/bin/sh"
HEAD_BYTES = 4096


class ScriptStart(NamedTuple):
    """What is executed."""

    argv: list[str]
    note: str = ""
    """Why it is not the file itself, empty when it is."""


def as_file(launch: Launch, cwd: str, journal: NodeLog) -> Launch:
    """How a script is launched: with its interpreter, where the kernel would not start it by itself.

    Raises:
        FileNotFoundError: that interpreter does not exist on this node.
    """
    start = start_of(launch.argv, cwd)
    if start.note:
        journal.say("info", start.note)
    return launch._replace(argv=start.argv)


def start_of(argv: list[str], cwd: str) -> ScriptStart:
    """How to start `argv`, whose first word is a script or a program.

    A word without a slash is a program on PATH and stays as it is, and so does what cannot be read.

    Raises:
        FileNotFoundError: the interpreter that the script names does not exist on this node.
    """
    if "/" not in argv[0]:
        return ScriptStart(argv)
    path = Path(cwd or ".", argv[0])
    words, is_clean = _first_line(path)
    if words is None:
        return ScriptStart(argv)
    executable = os.access(path, os.X_OK)
    if words and not Path(words[0]).exists():
        raise FileNotFoundError(f"its interpreter {words[0]} does not exist on this node")
    if executable and words and is_clean:
        return ScriptStart(argv)
    why = "is not executable" if not executable else "has no usable interpreter line"
    by = words or [SHELL]
    named = "" if words else ", which is taken where the script names none"
    return ScriptStart([*by, *argv], f"{argv[0]} {why}: started by {' '.join(by)}{named}")


def _first_line(path: Path) -> tuple[list[str] | None, bool]:
    """Interpreter and its one argument (as Linux splits them), and whether the kernel would read them so too.

    None for no text file: a program, or nothing that can be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None, True
    line = head.partition(b"\n")[0]
    if not head.startswith(b"#!"):
        return (None if b"\0" in line else []), True
    words = line[2:].strip().split(None, 1)
    return [os.fsdecode(word.strip()) for word in words], not line.endswith(b"\r")
