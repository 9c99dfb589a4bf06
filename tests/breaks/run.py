"""All of the breaks, those on a real cluster, too: `python -m tests.breaks.run [ROW...]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.breaks.breaking import is_noticed, read


def main() -> int:
    """0 when every test noticed."""
    asked = sys.argv[1:]
    missed = 0
    for one in read():
        if asked and one.row not in asked:
            continue
        with tempfile.TemporaryDirectory(prefix="rmbr") as folder:
            noticed = is_noticed(one, Path(folder), 900)
        missed += not noticed
        sys.stdout.write(f"{'noticed' if noticed else 'MISSED '}  {one.row:4} {one.rule}: {one.test}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
