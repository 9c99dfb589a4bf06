"""Our programs that plans start: `python -m remuda.enter WORD …` becomes one of them, and loads nothing else.

Plans are kept for months, so they say a word and not the module that has the program today. Plans of versions that
named the modules are read through the same table.
"""

from __future__ import annotations

import runpy
import sys

NAME = "remuda.enter"
PROGRAMS = {
    "drive": ("remuda job drive", "remuda job drive"),
    "gate": ("remuda.client.gate", "remuda.control.gate"),
    "llamacpp": ("remuda.serving.llamacpp_server", "remuda.serving.llamacpp_server"),
    "nginx": ("remuda.serving.nginx_launcher", "remuda.serving.nginx_launcher"),
    "rank": ("remuda.client.api.entrypoint", "remuda.control.entrypoint"),
    "recorder": ("remuda.node recorder", "remuda.node recorder"),
    "relay": ("remuda.serving.relay.program", "remuda.serving.relay"),
    "smg": ("remuda.serving.smg_launcher", "remuda.serving.smg_launcher"),
}
"""Word -> its module and first arguments today, and as plans of earlier versions say them, which never changes."""


def words(word: str) -> tuple[str, str, str]:
    """What an interpreter is given to run it."""
    return ("-m", NAME, word)


def renamed(argv: list[str] | tuple[str, ...], python: str = "") -> tuple[str, ...]:
    """A command of a stored plan with the word of its program, if that is one of ours. Pure.

    With `python`, only where an interpreter beside it runs it: others may have an earlier version, without words.
    """
    kept = tuple(argv)
    if python and "".join(kept[:1]).rpartition("/")[0] != python.rpartition("/")[0]:
        return kept
    at = 2 if kept[1:2] == ("-P",) else 1
    for word, (_, before) in PROGRAMS.items():
        old = ("-m", *before.split())
        if kept[at : at + len(old)] == old:
            return (*kept[:at], *words(word), *kept[at + len(old) :])
    return kept


def main() -> None:
    """Become the program, as if its module had been named; code 2 when there is none of that name."""
    word = "".join(sys.argv[1:2])
    if word not in PROGRAMS:
        sys.stderr.write(f"{NAME}: there is no program {word!r}; there are {', '.join(PROGRAMS)}\n")
        sys.exit(2)
    module, *first = PROGRAMS[word][0].split()
    sys.argv[1:2] = first
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
