"""One directory that remembers a job: who may write it, what the job was, what each row came to.

    lock            held by the one driver that may write
    job.json        the fingerprint of the job
    results.log     one framed record per finished row (`log.py`)
    progress.json   what `job status` shows
    output.json     which output was written from which length of the log

Record: key, then the JSON array `[outputs, error, prompt tokens, completion tokens, finish reason]`. Key: the row's
position (u64), or with an id column the id's digest (16 bytes) and that of the row's input (8 bytes). The newest
record of a row wins.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda.base.files import write_atomic
from remuda.batch.index import IdTable, OffsetIndex
from remuda.batch.lenient import settled
from remuda.batch.log import MAGIC, LogWriter, StorageFull, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.batch.answer import Answer

_log = logging.getLogger(__name__)
_POSITION: Final = 8
_ID: Final = 24
#: How the JSON part of a rejected row begins; an answer has null in the second place.
_FAILED: Final = b'[[],"'


def encode_answer(answer: Answer) -> bytes:
    """The JSON part of a finished row's record.

    Raises:
        TypeError: an output is not JSON-able.
    """
    return orjson.dumps(
        (answer.outputs, None, answer.prompt_tokens, answer.completion_tokens, answer.finish_reason),
        option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS,
    )


def encode_error(message: str) -> bytes:
    """The JSON part of a rejected row's record."""
    return orjson.dumps(((), message.encode("utf-8", "replace").decode(), 0, 0, ""))


class Checkpoint:
    """The log of one job with its index. Positions are those of the input of this run."""

    def __init__(self, folder: Path, *, ids: IdTable | None, keep: bool) -> None:
        """Open what `lock_folder` locked. `keep` False means that the folder is temporary."""
        self.folder = folder
        self.keep = keep
        self.done = 0
        self.errors = 0
        self._ids = ids
        self._key_bytes = _ID if ids is not None else _POSITION
        self._index = OffsetIndex(folder)
        self._log = self._open_log()

    def _open_log(self) -> LogWriter:
        path, end = self.folder / "results.log", 0
        if path.exists():
            end = len(MAGIC) if path.stat().st_size >= len(MAGIC) else 0
            for offset, payload in scan(path):
                self._note(payload, offset)
                end = offset + 8 + len(payload)
            size = path.stat().st_size
            if end < size and size > len(MAGIC):
                _log.info("cut %d bytes of a torn record off %s", size - end, path)
        return LogWriter(path, end)

    def _note(self, payload: bytes, offset: int) -> None:
        position = self._position(payload)
        if position >= 0:
            self._put(position, offset, failed=payload.startswith(_FAILED, self._key_bytes))

    def _position(self, payload: bytes) -> int:
        if self._ids is None:
            return int.from_bytes(payload[:8], "little")
        return self._ids.position(payload[:16])

    def _put(self, position: int, offset: int, *, failed: bool) -> None:
        old = self._index.get(position)
        if old is None:
            self.done += 1
        elif old[1]:
            self.errors -= 1
        self.errors += failed
        self._index.put(position, offset, flag=failed)

    def state(self, position: int) -> str:
        """`""` for a row without record, else `"done"` or `"error"`."""
        found = self._index.get(position)
        return "" if found is None else ("error" if found[1] else "done")

    def same_input(self, position: int, content: bytes) -> bool:
        """With an id column: whether the recorded answer belongs to this input digest (8 bytes)."""
        found = self._index.get(position)
        if found is None:
            return False
        self._log.flush()
        return next(self._log.read_many([found[0]]))[1][16:24] == content

    def write(self, position: int, key: bytes, body: bytes, *, failed: bool) -> None:
        """Record one row; `flush` makes it safe."""
        self._put(position, self._log.append(key + body), failed=failed)

    def flush(self) -> None:
        """Hand records to the kernel. Raises `StorageFull`."""
        self._log.flush()

    def sync(self) -> None:
        """Hand flushed records to the disk. May run in a thread. Raises `StorageFull`."""
        if self.keep:
            self._log.sync()

    def read(self, first: int, count: int) -> list[list[Any] | None]:
        """Records `[outputs, error, prompt tokens, completion tokens, finish reason]` of `count` rows from `first`.

        A row without record gives None.
        """
        self._log.flush()
        found = [self._index.get(position) for position in range(first, first + count)]
        offsets = sorted(item[0] for item in found if item is not None)
        bodies = {offset: settled(orjson.loads(raw[self._key_bytes :])) for offset, raw in self._log.read_many(offsets)}
        return [None if item is None else bodies[item[0]] for item in found]

    def outputs(self) -> Iterator[list[Any]]:
        """Outputs of all answered records in log order, superseded ones too: for finding types."""
        self._log.flush()
        for _, payload in scan(self.folder / "results.log"):
            if not payload.startswith(_FAILED, self._key_bytes):
                yield orjson.loads(payload[self._key_bytes :])[0]

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self._log.end

    def close(self) -> None:
        """Let go; a temporary folder is removed."""
        self._log.close()
        self._index.close()
        if self._ids is not None:
            self._ids.close()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def full(folder: Path, error: OSError) -> StorageFull:
    """The error for a checkpoint directory that refuses a write."""
    return StorageFull(
        f"the checkpoint directory {folder} cannot be written: {error.strerror}",
        hint="make room and type the same command again; the rows written so far are kept",
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from `path`, empty when it is absent or not one."""
    try:
        data = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON object, whole or not at all.

    Raises:
        StorageFull: the disk refuses.
    """
    try:
        write_atomic(path, orjson.dumps(data, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise full(path.parent, error) from error


def clear(folder: Path) -> None:
    """Forget everything in a locked checkpoint directory but the lock."""
    for name in ("results.log", "job.json", "progress.json", "output.json"):
        (folder / name).unlink(missing_ok=True)


def temporary_folder(output: Path) -> Path:
    """A folder beside `output` for a job without checkpoint; `Checkpoint.close` removes it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".spool", dir=output.parent))
