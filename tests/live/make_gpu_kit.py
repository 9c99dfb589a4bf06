"""Makes `gpu-kit/` for `make gpu`: `python tests/live/make_gpu_kit.py [--python 3.12]`, which is `make gpu-kit`.

The kit is what remuda's core and its gangs need, with the versions and hashes of `requirements.lock`, for Linux on
x86-64: `site.zip`, to be unpacked before use, and `kit.json`, which says what is in it. numpy comes with torch, where
the kit is used, and pyarrow is not needed there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
PLATFORM = "x86_64-manylinux_2_28"
MOST_BYTES = 60 << 20
LEFT_OUT = ("numpy", "pyarrow")
#: Extras whose packages are taken, too: training over a store, and what Transformers' server imports.
EXTRAS = ("gang", "openai")
ARCHIVE, CONTENTS = "site.zip", "kit.json"
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def wanted(project: str) -> list[str]:
    """What is asked for: the requirements of the core and of `EXTRAS` in a `pyproject.toml`, without `LEFT_OUT`."""
    said = tomllib.loads(project)["project"]
    found = [*said["dependencies"], *(one for extra in EXTRAS for one in said["optional-dependencies"][extra])]
    return sorted({one for one in found if _name(one) not in LEFT_OUT})


def locked(lock: str, names: set[str]) -> str:
    """The entries of these packages in a lock, with their hashes.

    Raises:
        KeyError: one is not in it.
    """
    entries = {_name(entry): entry for entry in re.split(r"\n(?=[A-Za-z0-9])", lock.strip())}
    return "\n".join(entries[name] for name in sorted(names)) + "\n"


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    return found.group().lower().replace("_", "-").replace(".", "-") if found else ""


def _uv(*words: str) -> str:
    uv = Path(sys.executable).with_name("uv")
    return subprocess.run([str(uv), "pip", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def _installed(folder: Path, python: str) -> Path:
    """A folder with the packages, made in `folder`."""
    asked, left_out, pinned = folder / "wanted.txt", folder / "left-out.txt", folder / "pinned.txt"
    asked.write_text("\n".join(wanted((ROOT / "pyproject.toml").read_text())))
    left_out.write_text("\n".join(LEFT_OUT))
    where = ["--python-version", python, "--python-platform", PLATFORM]
    resolved = _uv("compile", "--quiet", *where, "--no-header", "--no-annotate", "--constraints", str(LOCK),
                   "--excludes", str(left_out), str(asked))  # fmt: skip
    names = {_name(line) for line in resolved.splitlines() if "==" in line}
    pinned.write_text(locked(LOCK.read_text(), names))
    site = folder / "site"
    _uv("install", "--quiet", "--target", str(site), *where, "--only-binary", ":all:", "--no-deps", "--require-hashes",
        "-r", str(pinned))  # fmt: skip
    return site


def _packed(site: Path, archive: Path) -> None:
    left = {site / ".lock", site / "bin"}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(site.rglob("*")):
            if path.is_file() and not left & {path, *path.parents}:
                file.write(path, path.relative_to(site))


def make(folder: Path, python: str) -> int:
    """Make the kit; its size in bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        site = _installed(Path(place), python)
        _packed(site, folder / ARCHIVE)
        packages = sorted(path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info"))
    (folder / CONTENTS).write_text(json.dumps({"python": python, "packages": packages}, indent=1) + "\n")
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> int:
    """Make it; 1 where it is larger than it may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "gpu-kit")
    parser.add_argument("--python", default="3.12", help="version that it is for")
    said = parser.parse_args()
    size = make(said.folder, said.python)
    print(f"{said.folder}: {size / (1 << 20):.1f} MiB for Python {said.python}, Linux x86-64")
    return 0 if size <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
