"""How a script is started as a file: by the kernel where it can, else by the interpreter that its first line names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.node.child.launch import Launch
    from remuda.node.journal import NodeLog

SHELL = "/bin/sh"
HEAD_BYTES = 4096


def as_file(launch: Launch, cwd: str, journal: NodeLog) -> Launch:
    """How a script is launched: with its interpreter, where the kernel would not start it by itself.

    A first word without a slash is a program on PATH and stays as it is, and so does what cannot be read.

    Raises:
        FileNotFoundError: that interpreter does not exist on this node.
    """
    program = launch.argv[0]
    path = Path(cwd or ".", program)
    words, is_clean = _first_line(path) if "/" in program else (None, True)
    if words is None:
        return launch
    executable = os.access(path, os.X_OK)
    if words and not Path(words[0]).exists():
        raise FileNotFoundError(f"its interpreter {words[0]} does not exist on this node")
    if executable and words and is_clean:
        return launch
    why = "is not executable" if not executable else "has no usable interpreter line"
    by = words or [SHELL]
    named = "" if words else ", which is taken where the script names none"
    journal.say("info", f"{program} {why}: started by {' '.join(by)}{named}")
    return launch._replace(argv=[*by, *launch.argv])


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
