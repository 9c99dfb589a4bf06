"""Recipes as people write them for srtctl, by a dry run for Slurm: what stands in `commands.txt` of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.cli import main

CASES = Path(__file__).parents[2] / "cases" / "recipes"
WORDS: dict[str, dict[str, dict[str, list[str]]]] = yaml.safe_load((CASES / "words.yaml").read_text())


def test_every_recipe_has_its_words() -> None:
    there: dict[str, Any] = {file: yaml.safe_load((CASES / file).read_text()) for file in WORDS}
    for file, recipe in there.items():
        assert {key.removeprefix("override_") for key in recipe if key != "base"} == {*WORDS[file]}, file
    assert {path.name for path in CASES.glob("*.yaml")} - {*WORDS} == {"words.yaml", "srtslurm.yaml"}


@pytest.mark.parametrize(("file", "selector"), [(file, name) for file, named in WORDS.items() for name in named])
def test_words_of_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, selector: str) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    target = f"{CASES / file}:{selector}"
    cluster = ["--backend", "slurm", "--cluster", str(CASES / "srtslurm.yaml")]
    assert main(["apply", target, "--dry-run", "--write", str(tmp_path / "kept"), *cluster]) == 0
    assert not (tmp_path / "home").exists(), "a dry run writes where it is told to, and nowhere else"
    commands = (tmp_path / "kept/commands.txt").read_text()
    runs: dict[str, str] = {}
    group = ""
    for line in commands.splitlines():
        if line.startswith("# runs: "):
            runs.setdefault(group, line)
        elif line.startswith("# "):
            group = line.split(".")[1]
    for name, words in WORDS[file][selector].items():
        text = "\n".join(runs.values()) if name == "never" else runs[name]
        assert [word for word in words if (word in text) is (name == "never")] == [], f"{name}: {text}"
