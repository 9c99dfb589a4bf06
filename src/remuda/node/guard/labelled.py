"""What the other nodes of a replica print, each line with the name of its node: so a fault is blamed on that one."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LINE = 1 << 13
"""A longer line is cut in pieces."""
_LABEL = re.compile(rb" *(\d+): ")
_OF_SLURM = re.compile(rb"(?: *\d+: )?(?:srun|slurmstepd\S*): ")


def named(line: bytes, nodes: Mapping[int, str]) -> bytes:
    """A line of `srun --label` with the node in brackets in place of the label; others as they are. Pure.

    Args:
        line: `TASK: text`.
        nodes: names by rank, which is one more than the number of the task: rank 0 is not one of srun's.
    """
    label = _LABEL.match(line)
    name = nodes.get(int(label.group(1)) + 1, "") if label is not None else ""
    return b"[%s] %s" % (name.encode(), line[label.end() :]) if label is not None and name else line


class Labelled:
    """The pipe from srun, passed on to standard output.

    Args:
        fd: its reading end.
        nodes: names by rank; may grow.
    """

    def __init__(self, fd: int, nodes: Mapping[int, str]) -> None:
        self.fd = fd
        self._nodes = nodes
        self._rest = b""
        self._ended = False
        os.set_blocking(fd, False)

    def pass_on(self, *, ended: bool = False) -> None:
        """Pass on the lines that are there. Never waits for more.

        Args:
            ended: the step was ended by this program, so what Slurm says of its end tells nobody anything.
        """
        self._ended = ended
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._write([self._rest] if self._rest else [])
                self._rest = b""
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MAX_LINE:
                lines, self._rest = [*lines, self._rest], b""
            self._write(lines)

    def _write(self, lines: list[bytes]) -> None:
        out = sys.stdout.buffer
        for line in lines:
            if self._ended and _OF_SLURM.match(line):
                continue
            out.write(named(line, self._nodes) + b"\n")
        out.flush()
