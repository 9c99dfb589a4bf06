"""The object store, seen from a worker: create once, read what is whole, list; counted, and tried again.

Stores are opened by obstore: `file://`, `s3://`, `gs://`, `az://` and `memory://`. Credentials come from where the
store's own tools find them (environment, instance or pod identity).
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np

from remuda.base.errors import Conflict, InputError, NotFound, Rejected, Unavailable
from remuda.gang.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from remuda.gang.objects.codec import Octets

T = TypeVar("T")

TRIES: Final = 6
"""Of a request whose answer says that another one may be answered."""
FIRST_PAUSE_S: Final = 0.1
LARGEST_PUT: Final = 5 << 30
"""What stores take in one request, and copy in one."""
LEAST_PART: Final = 5 << 20
"""What S3 takes as a part that is not the last one."""
MOST_PARTS: Final = 10_000
MOST_DOCUMENT: Final = 4 << 20
"""Bytes: a manifest of 65,536 ranks has 0.4 MB."""
_SCHEMES: Final = ("file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "memory")
_REQUEST_TIMEOUT: Final = "600s"
_MEMORIES: dict[str, Any] = {}


class Raw(Protocol):
    """What is used of a store of obstore."""

    def put(self, path: str, file: Any, *, mode: Any = ..., use_multipart: Any = ..., chunk_size: Any = ...) -> Any:
        """Write an object; `mode` create refuses to replace one."""
        ...

    def get(self, path: str) -> Any:
        """Something whose `bytes()` are the object's, and whose `meta` has its `size`."""
        ...

    def get_range(self, path: str, *, start: int, end: int) -> Any:
        """Bytes of an object, `end` exclusive; fewer where it is shorter."""
        ...

    def list(self, prefix: str) -> Any:
        """Chunks of what is there."""
        ...

    def delete(self, paths: Sequence[str]) -> Any:
        """Remove objects."""
        ...

    def copy(self, from_: str, to: str, *, overwrite: bool) -> Any:
        """Copy an object inside the store."""
        ...


@dataclass(frozen=True)
class Listed:
    """An object in a listing. `modified` is seconds since the epoch by the store's clock."""

    key: str
    size: int
    modified: float


@dataclass
class Counts:
    """Requests and bytes since the bucket was opened, those that were tried again included."""

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def requests(self) -> int:
        """All of them."""
        return self.puts + self.gets + self.lists + self.deletes


def open_store(url: str, *, make: bool = True) -> Raw:
    """The store behind a URL.

    Raises:
        InputError: it is no URL of a store, or the store's settings are wrong.
        NotFound: it is a folder that is not there, and none is to be made.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in ("file", "s3", "gs", "az", "memory"))
        raise InputError(f"{url!r} is not the URL of an object store", hint=f"known: {known}")
    from obstore.exceptions import BaseError
    from obstore.store import MemoryStore, from_url

    if scheme == "memory":
        # One store a URL and process, as a bucket is: threads of one process meet in it.
        return _MEMORIES.setdefault(url.rstrip("/"), MemoryStore())  # type: ignore[no-any-return]
    try:
        if scheme == "file" and not make and not Path(unquote(urlsplit(url).path)).is_dir():
            raise NotFound(f"there is no folder {url}")
        if scheme == "file":
            return from_url(url, mkdir=make, automatic_cleanup=make)
        options = {"timeout": _REQUEST_TIMEOUT, "allow_http": True}
        config = {"copy_if_not_exists": "multipart"} if scheme in ("s3", "s3a") else {}
        return from_url(url, client_options=options, config=config)  # type: ignore[call-overload,no-any-return]
    except (BaseError, OSError, ValueError) as error:
        raise InputError(f"{url} cannot be opened: {_line(error)}") from error


@dataclass
class Bucket:
    """A store with the few things that workers do to it. Safe to read from several threads.

    Args:
        raw: the store.
        sleep: how to wait, for tests.
        multipart_bytes: size from which an object goes up in parts; None: none does.
    """

    raw: Raw
    sleep: Callable[[float], None] = time.sleep
    counts: Counts = field(default_factory=Counts)
    multipart_bytes: int | None = None

    def create(self, key: str, data: Octets | bytes) -> bool:
        """Put an object that is not there yet; whether these bytes are what lies there now.

        False says that somebody else was first: their object stays. An answer that was lost looks the same, so
        what lies there is compared. Where nothing does (409: of two that wrote at once none was taken), once more.
        """
        if len(data) > LARGEST_PUT:
            raise InputError(
                f"{key} would have {len(data):,} bytes, and a store takes {LARGEST_PUT:,} at once",
                hint="use codec='int8', or average the model in parts",
            )
        for attempt in range(TRIES):
            if self._put(key, data, "create"):
                return True
            try:
                if (lying := self.find(key, len(data))) is not None:
                    return bool(np.array_equal(lying, _octets(data)))
            except Conflict:
                return False
            self._pause(attempt)
        raise Unavailable(f"the store refuses to put {key} as if it were there, and it is not")

    def replace(self, key: str, data: Octets | bytes) -> None:
        """Put an object, whatever lay there."""
        self._put(key, data, "overwrite")

    def _put(self, key: str, data: Octets | bytes, mode: str) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put() -> bool:
            self.counts.puts += 1
            self.counts.bytes_up += len(data)
            try:
                self._send(key, _octets(data), mode)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return self._tried(put, f"put {key}")

    def _send(self, key: str, data: Octets, mode: str) -> None:
        if self.multipart_bytes is None or len(data) < self.multipart_bytes:
            self.raw.put(key, data.data, mode=mode, use_multipart=False)
            return
        part = max(LEAST_PART, -(-len(data) // MOST_PARTS))
        if mode == "overwrite":
            self.raw.put(key, data.data, use_multipart=True, chunk_size=part)
            return
        # Stores take no condition with parts, but one with the copy of an object that nobody else knows.
        aside = f"{key}.{random.getrandbits(64):016x}"
        self.raw.put(aside, data.data, use_multipart=True, chunk_size=part)
        try:
            self.raw.copy(aside, key, overwrite=False)
        finally:
            self._remove(aside)

    def find(self, key: str, most: int = MOST_DOCUMENT) -> Octets | None:
        """A whole object, None when it is not there.

        Raises:
            Conflict: it has more than `most` bytes.
        """

        def get() -> Octets:
            self.counts.gets += 1
            found = self.raw.get(key)
            if (size := found.meta["size"]) > most:
                raise Conflict(f"{key} has {size:,} bytes, and no worker writes more than {most:,} there")
            return np.frombuffer(found.bytes(), np.uint8)

        try:
            found = self._tried(get, f"get {key}")
        except FileNotFoundError:
            return None
        self.counts.bytes_down += len(found)
        return found

    def read(self, key: str, start: int, stop: int, check: Callable[[Octets], T]) -> T:
        """What `check` makes of the bytes from `start` to `stop`; both are done again while it finds them damaged.

        Raises:
            FileNotFoundError: the object is not there.
            Damaged: it is not whole, and did not become so.
        """

        def get() -> T:
            self.counts.gets += 1
            raw = np.frombuffer(self.raw.get_range(key, start=start, end=stop), np.uint8)
            self.counts.bytes_down += len(raw)
            return check(raw)

        return self._tried(get, f"get {key}")

    def list(self, prefix: str) -> list[Listed]:
        """All objects whose key begins with `prefix`, which ends with a slash."""

        def listed() -> list[Listed]:
            self.counts.lists += 1
            return [
                Listed(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for chunk in self.raw.list(prefix)
                for meta in chunk
            ]

        for _ in range(TRIES):
            # A folder whose last file goes while it is being read is no error.
            with suppress(FileNotFoundError):
                return self._tried(listed, f"list {prefix}")
        return []

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; absent ones are fine."""
        for key in keys:
            self._tried(lambda key=key: self._remove(key), f"delete {key}")  # type: ignore[misc]

    def _remove(self, key: str) -> None:
        self.counts.deletes += 1
        with suppress(FileNotFoundError):
            self.raw.delete([key])

    def probe(self, folder: str) -> None:
        """Refuse a store that does not keep the first of two writers, or that gives more than was asked for.

        Raises:
            Rejected: it does not.
        """
        key = f"{folder}/probe/{random.getrandbits(64):016x}"
        self._put(key, b"first", "create")
        try:
            again = self._put(key, b"second", "create")
            found = self.find(key)
            part = bytes(self.read(key, 1, 3, _two_or_more))
        finally:
            self.delete([key])
        if again or found is None or bytes(found) != b"first":
            raise Rejected(
                "this store lets a second writer replace what the first one wrote (it ignores If-None-Match: *)",
                hint="use a store with conditional writes: S3, GCS, Azure, a file system, MinIO, Ceph",
            )
        if part != b"ir":
            raise Rejected("this store does not answer for a range of bytes", hint="use another one")

    def _tried(self, act: Callable[[], T], what: str) -> T:
        """Do it, and again after a pause where the store is busy, did not answer, or gave damaged bytes."""
        from obstore.exceptions import BaseError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

        for attempt in range(TRIES):
            try:
                return act()
            except FileNotFoundError:
                raise
            except (NotSupportedError, PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
                raise Rejected(f"the store refused to {what}: {_line(error)}") from error
            except Damaged:
                if attempt == TRIES - 1:
                    raise
            except (BaseError, OSError) as error:
                if attempt == TRIES - 1:
                    raise Unavailable(f"the store did not {what}: {_line(error)}") from error
            self._pause(attempt)
        raise AssertionError(what)

    def _pause(self, attempt: int) -> None:
        self.sleep(FIRST_PAUSE_S * 2**attempt * (0.5 + random.random()))


def _two_or_more(raw: Octets) -> Octets:
    if len(raw) < 2:
        raise Damaged("less than was asked for")
    return raw


def _octets(data: Octets | bytes) -> Octets:
    return np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
