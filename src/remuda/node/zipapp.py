"""Builds the node program as one file that any Python 3.9+ runs: used where the control plane is installed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import remuda

ROOMS = ("node", "wire", "policy")
_MAIN = "import sys\nfrom remuda.node.program import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNCHECKED = 1
"""Flag of a compiled file that is never compared with its source (PEP 552)."""


def build_zipapp(target: Path) -> Path:
    """Pack the node program into `target/remuda-node-<hash>.pyz`; the path, which is there already if nothing changed.

    It holds the sources, which every Python can run, and beside them compiled files for the Python that builds, which
    make its own start three times as fast. The name is a hash of the sources and that Python's version. Several
    processes may build at once: the file appears whole.

    Args:
        target: directory, made if absent.

    Raises:
        OSError: `target` cannot be written.
    """
    sources = _sources()
    path = target / f"remuda-node-{_digest(sources)}.pyz"
    if path.exists():
        return path
    target.mkdir(parents=True, exist_ok=True)
    fd, draft = tempfile.mkstemp(prefix=".remuda-node-", dir=target)
    try:
        with os.fdopen(fd, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, text in sources.items():
                    _add(archive, name, text)
                    _add(archive, f"{name}c", _compiled(name, text))
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(draft).unlink()
        raise
    return path


def child_command(program: Path, document: Path, python: str = sys.executable) -> list[str]:
    """How the program is started: isolated from the user's site and PYTHON* variables, which the child still sees.

    Args:
        program: what `build_zipapp` made.
        document: the child document.
        python: interpreter on the node, 3.9 or newer.
    """
    return [python, "-I", "-S", str(program), "child", str(document)]


def _sources() -> dict[str, bytes]:
    """Path in the archive -> text, in a fixed order. This builder itself stays at home."""
    top = Path(remuda.__file__).parent
    files = [top / "__init__.py"]
    for room in ROOMS:
        files += sorted(path for path in (top / room).rglob("*.py") if path.resolve() != Path(__file__).resolve())
    packed = {f"remuda/{path.relative_to(top).as_posix()}": path.read_bytes() for path in files}
    return {"__main__.py": _MAIN.encode(), **packed}


def _digest(sources: dict[str, bytes]) -> str:
    total = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name, text in sources.items():
        total.update(f"{name}\0{len(text)}\0".encode() + text)
    return total.hexdigest()[:12]


def _compiled(name: str, text: bytes) -> bytes:
    """A `.pyc` as `py_compile` writes it, without a time stamp, so that equal sources give equal bytes."""
    code = compile(text, name, "exec", dont_inherit=True, optimize=0)
    flags = _UNCHECKED.to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(text) + marshal.dumps(code)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)
