"""Progress for eyes: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import IO, TYPE_CHECKING, Self

from remuda.base.text import clean
from remuda.base.units import show_count, show_counted, show_duration

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from remuda.batch.progress import Progress
    from remuda.batch.request import Summary

_LINE_EVERY_S = 5.0


def progress_line(progress: Progress) -> str:
    """One line that says where a job stands."""
    of = f"/{show_counted(progress.total, 'row')}" if progress.total is not None else " rows"
    parts = [f"{progress.state}: {show_count(progress.done)}{of}"]
    if progress.total:
        parts[0] += f" ({100 * progress.done / progress.total:.0f} %)"
    if progress.state == "running":
        parts.append(f"{progress.rows_per_s:.1f} rows/s")
        if progress.tokens_per_s:
            parts.append(f"{show_count(progress.tokens_per_s)} tokens/s")
        parts.append(f"{progress.in_flight} in flight (limit {progress.concurrency})")
        if progress.eta_s is not None:
            parts.append(f"{show_duration(progress.eta_s)} left")
    if progress.retries:
        parts.append(f"{show_count(progress.retries)} retries")
    if progress.failed:
        parts.append(f"{show_count(progress.failed)} errors")
    if progress.note:
        parts.append(progress.note)
    return " · ".join(parts)


def summary_lines(summary: Summary) -> list[str]:
    """What a finished job came to, a sentence a line."""
    if summary.output_kept:
        return [*summary.notes, f"nothing left to do: all {show_count(summary.rows)} rows are in {summary.output}"]
    cached = f" ({100 * summary.cached_tokens / summary.prompt_tokens:.0f} % cached)" if summary.cached_tokens else ""
    generated = show_count(summary.completion_tokens)
    counts = f"{show_count(summary.prompt_tokens)} prompt{cached} and {generated} generated tokens"
    tokens = f", {counts}," if summary.prompt_tokens or summary.completion_tokens else ""
    speed = f"{summary.rows_per_s:.1f} rows/s"
    if summary.completion_tokens:
        speed += f", {show_count(summary.tokens_per_s)} tokens/s"
    done = show_counted(summary.done, "row")
    lines = [*summary.notes, f"{done}{tokens} in {show_duration(summary.seconds)} ({speed})"]
    if summary.order == "prefix":
        lines.append(f"asked in the order of their beginnings, in {summary.lanes} lanes (--order input: as they come)")
    if summary.asked_again:
        times = "question was" if summary.asked_again == 1 else "questions were"
        lines.append(
            f"{show_count(summary.asked_again)} {times} sent again on another connection: the first was not read"
            " (is the server's listen queue too short for --max-concurrency?)"
        )
    if summary.skipped:
        again = "was not asked again" if summary.skipped == 1 else "were not asked again"
        lines.append(f"{show_counted(summary.skipped, 'row', 'was', 'were')} done before and {again}")
    if summary.failed:
        them = "that" if summary.failed == 1 else "them"
        rows = show_counted(summary.failed, "row", "carries", "carry")
        lines.append(f"{rows} an error (column error); --retry-errors does just {them}")
    lines.append(f"wrote {show_counted(summary.rows, 'row')} to {summary.output}")
    return lines


class ProgressView:
    """Shows a job while it runs: `with ProgressView() as view: run_job(request, view.update)`.

    Args:
        stream: where to; standard error when None.
        quiet: show nothing.
    """

    def __init__(self, stream: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self.has_begun = False
        """Whether there was a moment to show."""
        self._said = 0.0
        self._state = ""
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if not self._quiet and self._stream.isatty():
            self._start_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, progress: Progress) -> None:
        """Show a new moment."""
        self.has_begun = True
        if self._bar is not None and self._task is not None:
            note = clean(progress_line(progress).partition(" · ")[2], one_line=True)
            self._bar.update(
                self._task, total=progress.total, completed=progress.done, description=progress.state, note=note
            )
        elif not self._quiet:
            now = time.monotonic()
            if progress.state != self._state or now - self._said >= _LINE_EVERY_S:
                self._said, self._state = now, progress.state
                self._stream.write(clean(progress_line(progress), one_line=True) + "\n")
                self._stream.flush()

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(file=self._stream),
        )
        self._task = self._bar.add_task("starting", total=None, note="")
        self._bar.start()
