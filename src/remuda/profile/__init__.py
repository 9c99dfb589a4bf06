"""Recordings of GPUs: read, measured, drawn and passed on. The room knows recordings and files; no backend, no store.

    recorded = read(folder)               a `Recorded`: one timeline of spools (or what is left), Parquet, JSON
    analysis = analyse(recorded)          rows a GPU, a task and a process
    tables(analysis)                      cells for a terminal or a page; `as_json`, `as_csv` for programs
    facts(analysis)                       sentences
    page(recorded, analysis, now=…)       one HTML file; `picture(recorded, ".png")` by matplotlib
    export(recorded, "chrome", path)      `FORMATS`: chrome, csv, json, parquet
    close(folder)                         spools of a recording that has ended become one Parquet file

A token says nothing here: whoever knows gives `attempt_of` to `read`, a function from a token to an `Attempt`.
"""

from __future__ import annotations

from remuda.profile.analysis import Analysis, GpuRow, ProcessRow, TaskRow, Use, analyse
from remuda.profile.columns import Attempt, Recorded
from remuda.profile.exports import FORMATS, export
from remuda.profile.facts import facts
from remuda.profile.files import close, read
from remuda.profile.picture import PICTURES, check_picture, picture
from remuda.profile.report import page
from remuda.profile.tables import Table, as_csv, as_json, tables
from remuda.wire.spool import CLOSED

__all__ = [
    "CLOSED", "FORMATS", "PICTURES", "Analysis", "Attempt", "GpuRow", "ProcessRow", "Recorded", "Table", "TaskRow",
    "Use", "analyse", "as_csv", "as_json", "check_picture", "close", "export", "facts", "page", "picture", "read",
    "tables",
]  # fmt: skip
