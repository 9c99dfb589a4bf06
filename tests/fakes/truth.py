"""The server of `truth.c` as a child process, and what it wrote down: what a load generator is held against."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import orjson

from remuda.base.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE: Final = Path(__file__).with_name("truth.c")
#: Ports that servers had: the kernel gives them again, and a home remembers an address that it measured.
_GIVEN: set[int] = set()
#: Of each prompt, so many bytes are written down: enough to tell its request from all others.
KEY: Final = 64


@dataclass(frozen=True)
class Record:
    """One answer as the server sent it; ns of CLOCK_MONOTONIC, 0 where that did not happen.

    Attributes:
        key: the first `KEY` bytes of the prompt.
        status: of HTTP.
        ending: 0 where it was whole.
        read: the last byte of the request was read.
        first: send() of the first content had returned.
        last: of the last content.
        tokens: sent.
        late: by how much a piece left after its time, at most.
    """

    key: str
    status: int
    ending: int
    read: int
    first: int
    last: int
    tokens: int
    late: int


def build(folder: Path) -> Path:
    """Compile the server into a folder with the machine's compiler.

    Raises:
        Unavailable: there is none, or it fails.
    """
    program = folder / "truth"
    try:
        subprocess.run(
            ["cc", "-O2", "-o", str(program), str(SOURCE), "-lm"], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{SOURCE.name} cannot be compiled: {getattr(error, 'stderr', '') or error}") from error
    return program


class Truth:
    """The running server.

    Args:
        program: what `build` returned.
        records: file that it appends a line per answer to.
        flags: see `known` in `truth.h`.
    """

    def __init__(self, program: Path, records: Path | None = None, **flags: float) -> None:
        self._argv = [str(program), str(records or ""), *(f"{name}={value}" for name, value in flags.items())]
        self._records = records
        self.port = 0
        self._start(self._argv)
        while self.port in _GIVEN:
            self.close()
            self._start(self._argv)
        _GIVEN.add(self.port)

    def _start(self, argv: Sequence[str]) -> None:
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Unavailable(f"{argv[0]} ended with code {self.process.wait()}")
        self.port = int(line)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        """Kill it in the middle of what it does, and start it anew on the same port."""
        self.process.kill()
        self.close()
        self._start([*self._argv, f"port={self.port}"])

    def records(self) -> list[Record]:
        """What it wrote down; it has to have ended."""
        assert self._records is not None
        return [Record(**orjson.loads(line)) for line in self._records.read_bytes().splitlines()]

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
