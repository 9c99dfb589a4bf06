"""One directory that remembers a job: who may write it, what the job was, what each row came to.

    lock            held by the one driver that may write
    job.json        the fingerprint of the job, with a checksum
    results.log     one framed record per finished row (`log.py`), and the fingerprint once more
    progress.json   what `job status` shows
    output.json     which output was written from which length of the log, with a checksum
    results.damaged-N.log   logs in which something could not be read, as they were found

Record: key, then the JSON array `[outputs, error, prompt tokens, completion tokens, finish reason]`. Key: the row's
position (u64), or with an id column the id's digest (16 bytes); then the digest of the row's input (8 bytes). The
newest record of a row wins, and counts only for the input that it was made for.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import orjson

from remuda.base.disk.files import write_atomic
from remuda.base.errors import RemudaError
from remuda.batch.output.index import IdTable, OffsetIndex
from remuda.batch.output.log import LogWriter, Scan, StorageFull, salvage, scan
from remuda.batch.pipeline.lenient import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.batch.pipeline.answer import RowAnswer

_log = logging.getLogger(__name__)
_POSITION: Final = 16
_ID: Final = 24
#: In place of a key: what follows is the fingerprint of the job. No row has this position, and no id this digest.
_IDENTITY: Final = b"\xff" * 16
#: How the JSON part of a rejected row begins; an answer has null in the second place.
_FAILED: Final = b'[[],"'


def encode_answer(answer: RowAnswer) -> bytes:
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
    """The log of one job with its index. Positions are those of the input of this run.

    Attributes:
        done: rows with a record.
        errors: rows among them whose record is an error.
        notes: what the user should know of how it was found, a sentence each.
    """

    def __init__(self, folder: Path, *, ids: IdTable | None, keep: bool) -> None:
        """Open what `lock_folder` locked. `keep` False means that the folder is temporary.

        Raises:
            RemudaError: it cannot be read, or not be written.
        """
        self.folder = folder
        self.keep = keep
        self.done = 0
        self.errors = 0
        self.notes: list[str] = []
        self._ids = ids
        self._key_bytes = _ID if ids is not None else _POSITION
        self._identity = b""
        self._is_doubtful = False
        """Whether records are missing: an error may be older than an answer that was lost."""
        self._index = self._new_index()
        try:
            self._log = self._open_log()
        except BaseException:
            self._index.close()
            raise

    def _new_index(self) -> OffsetIndex:
        try:
            return OffsetIndex(self.folder)
        except OSError as error:
            raise full(self.folder, error) from error

    def _open_log(self) -> LogWriter:
        path = self.folder / "results.log"
        if not path.exists():
            return LogWriter(path, 0)
        found = self._read_log(path)
        if found.damaged:
            kept = salvage(path)
            self.notes.append(
                f"{path} was damaged: {found.lost} of its records cannot be read, and rows without another one are "
                f"asked again; the damaged file is kept as {kept.name}"
            )
            self._index.close()
            self._is_doubtful = True
            self.done = self.errors = 0
            self._index = self._new_index()
            found = self._read_log(path)
        return LogWriter(path, found.end, found.number)

    def _read_log(self, path: Path) -> Scan:
        found = Scan(path)
        for offset, payload in found:
            if payload.startswith(_IDENTITY):
                self._identity = payload
                continue
            position = self._position(payload)
            if position >= 0:
                failed = payload.startswith(_FAILED, self._key_bytes)
                self._put(position, offset, payload[: self._key_bytes], failed=failed)
        return found

    def _position(self, payload: bytes) -> int:
        if self._ids is None:
            return int.from_bytes(payload[:8], "little")
        return self._ids.position(payload[:16])

    def _put(self, position: int, offset: int, key: bytes, *, failed: bool) -> None:
        try:
            old = self._index.get(position)
            self._index.put(position, offset, flag=failed, tag=int.from_bytes(key[-8:], "little"))
        except OSError as error:
            raise full(self.folder, error) from error
        if old is None:
            self.done += 1
        elif old[1]:
            self.errors -= 1
        self.errors += failed

    def claim(self, identity: dict[str, Any]) -> None:
        """Write down which job it belongs to: in `job.json`, and in the log, from which that file can be made again.

        Raises:
            StorageFull: the disk refuses.
        """
        path = self.folder / "job.json"
        if read_json(path) != identity:
            if path.exists() and self._identity:
                _log.info("%s is written anew", path)
            write_json(path, identity)
        payload = _IDENTITY + orjson.dumps(identity)
        if payload != self._identity:
            self._log.append(payload)
            self._log.flush()
            self._identity = payload

    def state(self, position: int) -> str:
        """`""` for a row without record, else `"done"` or `"error"`."""
        found = self._index.get(position)
        return "" if found is None else ("error" if found[1] else "done")

    def same_input(self, position: int, content: bytes) -> bool:
        """Whether the recorded answer belongs to this input digest (8 bytes); False without a record."""
        found = self._index.get(position)
        return found is not None and found[2] == int.from_bytes(content, "little")

    def is_due(self, position: int, content: bytes, *, retry_errors: bool) -> bool:
        """Whether a row with this input digest is still to be asked."""
        found = self._index.get(position)
        if found is None or found[2] != int.from_bytes(content, "little"):
            return True
        return (retry_errors or self._is_doubtful) and found[1]

    def write(self, position: int, key: bytes, body: bytes, *, failed: bool) -> None:
        """Record one row; `flush` makes it safe."""
        self._put(position, self._log.append(key + body), key, failed=failed)

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
            if not payload.startswith(_IDENTITY) and not payload.startswith(_FAILED, self._key_bytes):
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


def read_identity(folder: Path) -> dict[str, Any]:
    """Which job a checkpoint belongs to: what `job.json` says, or where that is damaged or gone, the log.

    Raises:
        RemudaError: the log cannot be read.
    """
    found = read_json(folder / "job.json")
    path = folder / "results.log"
    if found or not path.exists():
        return found
    newest = b"{}"
    for _, payload in scan(path):
        if payload.startswith(_IDENTITY):
            newest = payload[len(_IDENTITY) :]
    return orjson.loads(newest)  # type: ignore[no-any-return]


def has_records(folder: Path) -> bool:
    """Whether the log of a checkpoint has anything worth keeping.

    Raises:
        RemudaError: it cannot be read.
    """
    path = folder / "results.log"
    return path.exists() and next(scan(path), None) is not None


def _checksum(data: dict[str, Any]) -> str:
    return f"{crc32(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)):08x}"


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote to `path`, empty when it is absent, cut or changed in any way."""
    try:
        data = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict):
        return {}
    check = data.pop("checksum", None)
    return data if check == _checksum(data) else {}


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON object with its checksum, whole or not at all.

    Raises:
        StorageFull: the disk refuses.
    """
    try:
        write_atomic(path, orjson.dumps(data | {"checksum": _checksum(data)}, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise full(path.parent, error) from error


def clear(folder: Path) -> None:
    """Forget everything in a locked checkpoint directory but the lock and what was kept of damaged logs.

    Raises:
        RemudaError: a file cannot be removed.
    """
    for name in ("results.log", "job.json", "progress.json", "output.json"):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise RemudaError(f"{folder / name} cannot be removed: {error.strerror}") from error


def temporary_folder(output: Path) -> Path:
    """A folder beside `output` for a job without checkpoint; `Checkpoint.close` removes it.

    Raises:
        StorageFull: it cannot be made.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".spool", dir=output.parent))
    except OSError as error:
        raise full(output.parent, error) from error
