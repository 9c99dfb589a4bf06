"""A real host whose node programs have a clock of their own: `NODE_X` in its environment is `X` in theirs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from remuda.backends.local import client
from remuda.host.server import main

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_spawn = client._spawn


def spawn(argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    names = {name.removeprefix("NODE_"): value for name, value in os.environ.items() if name.startswith("NODE_")}
    return _spawn(argv, {**env, **names}, log)


if __name__ == "__main__":
    client._spawn = spawn
    sys.exit(main())
