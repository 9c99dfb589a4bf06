"""Calls the function that a rank is to run: `python -m remuda.enter rank MODULE:NAME` in the rank's process.

Its keyword arguments come from the environment, and what it returns goes into the rank's result file. Into images,
which have no remuda, this file travels, for Python 3.9 and the standard library: `python3 FILE MODULE:NAME told`;
there the result is the last line of output.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from operator import attrgetter
from pathlib import Path

ARGUMENTS = "REMUDA_ARGS"
"""Variable with the keyword arguments, as a JSON object."""
RESULT = "REMUDA_RESULT_FILE"
TOLD = "remuda.result"
"""Key of the object that is the last line of output, where results are told."""


def main(target: str, *, is_told: bool = False) -> None:
    """Call `target` and keep its result, if it has one; or tell it.

    Raises:
        TypeError: the result cannot be written as JSON.
    """
    module, _, name = target.partition(":")
    function = attrgetter(name)(importlib.import_module(module))
    result = function(**json.loads(os.environ.get(ARGUMENTS) or "{}"))
    if result is not None:
        text = json.dumps(result)
        if is_told:
            sys.stdout.write(f'\n{{"{TOLD}": {text}}}\n')
            return
        path = Path(os.environ[RESULT])
        draft = path.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)


if __name__ == "__main__":
    main(sys.argv[1], is_told=len(sys.argv) > 2)
