"""The newest report of an allocation on this machine is read whenever it was replaced, and only then."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import TaskKey, make_token
from remuda.backends.local.client import LocalClient
from remuda.wire.report import Report

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = make_token(TaskKey("w", "script", 0), 1, "abcd1234")


def test_two_reports_within_one_tick_of_the_clock_are_two(tmp_path: Path) -> None:
    client = LocalClient(tmp_path)
    file = client.folder(TOKEN) / "report.json"
    file.parent.mkdir(parents=True)
    first = Report(token=TOKEN, attempt=1, seq=1, at=1.0, state="starting")
    for report in (first, replace(first, seq=2, state="ready")):
        new = file.with_suffix(".new")
        new.write_text(report.to_json())
        os.utime(new, ns=(5, 5))
        new.rename(file)
        found = client.report(TOKEN)
        assert found == report
        assert client.report(TOKEN) is found, "what has not changed is not read again"
