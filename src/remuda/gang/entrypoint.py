"""`python -m remuda.gang.entrypoint MODULE:FUNCTION [KEY=VALUE ...]`: what a scheduler starts as one copy.

The function is called with the values as text. It finds its rank, the run and the store in the environment, as
`ObjectStoreAllReduce()` does. A missing rank or store is said before anything is imported. What the function returns
or raises decides the exit code: None and True are 0, a whole number is itself, an error of remuda is its own code.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from remuda.base.errors import InputError, RemudaError
from remuda.gang import environment


def target(text: str) -> Any:
    """The function that `module:function` names; the working directory is searched, too.

    Raises:
        InputError: it names none.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise InputError(f"{text!r} is not MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # The module is there, and what it imports is not: its own traceback says more.
        raise InputError(f"there is no module {module!r}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InputError(f"{text} is not a function")
    return found


def main(argv: list[str]) -> int:
    """Run one copy; gives its exit code."""
    try:
        if not argv:
            raise InputError("what to run is missing", hint="python -m remuda.gang.entrypoint MODULE:FUNCTION")
        environment.number(None, environment.RANK, "the rank", 0)
        environment.number(None, environment.WORLD_SIZE, "the number of copies", 1)
        environment.text(None, environment.URL, "the URL of the store")
        environment.text(None, environment.RUN_ID, "the run's id")
        values = dict(word.split("=", 1) for word in argv[1:] if "=" in word)
        if len(values) != len(argv) - 1:
            raise InputError("what stands behind the function is KEY=VALUE")
        result = target(argv[0])(**values)
    except RemudaError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    return int(result) if isinstance(result, int) and not isinstance(result, bool) else int(result is False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
