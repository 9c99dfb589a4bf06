"""The node program, packed once by each worker."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from remuda.node.zipapp import build_zipapp


@functools.cache
def _packed() -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        program = build_zipapp(Path(folder))
        return program.name, program.read_bytes()


def node_program(folder: Path) -> Path:
    """What `build_zipapp(folder)` makes, without compiling it again."""
    name, whole = _packed()
    folder.mkdir(mode=0o700)
    path = folder / name
    path.write_bytes(whole)
    path.chmod(0o644)
    return path
