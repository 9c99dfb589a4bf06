"""A sample of the feature table: with its rule broken, the test that is to prove a row fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.breaks.breaking import ROOT, Break, is_noticed, read

if TYPE_CHECKING:
    from collections.abc import Mapping

BREAKS = read()


def rows() -> Mapping[str, str]:
    """Line of the feature table by the row's id."""
    lines = (ROOT / "docs" / "features.md").read_text().splitlines()
    return {found[1]: line for line in lines if (found := re.match(r"\| ([A-Z]\d+) \|", line))}


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: f"{one.row} {one.rule}")
def test_it_can_still_be_broken(one: Break, tmp_path: Path) -> None:
    """A line that was moved takes its entry with it; the row names the test."""
    copy = tmp_path / Path(one.file).name
    copy.write_text((ROOT / "src/remuda" / one.file).read_text())
    Break(one.row, one.rule, copy.name, one.old, one.new, one.test).apply(tmp_path)
    assert one.test in rows()[one.row], f"row {one.row} does not name {one.test}"


@pytest.mark.parametrize("one", [one for one in BREAKS if one.is_fast], ids=lambda one: f"{one.row} {one.rule}")
def test_its_test_notices(one: Break, tmp_path: Path) -> None:
    assert is_noticed(one, tmp_path), f"{one.test} passes although this is broken: {one.rule}"
