"""One tree of errors: what was wrong, with which values, and what to do.

    RemudaError            1   work failed
    ├── InputError         2   a file, flag or value is wrong: fix it and re-run the command
    │   └── NoSuchCluster
    ├── NotFound           3   no workload, job, file or row of that name
    ├── Conflict           4   it exists already, or its state forbids the request
    │   └── NotPrivate
    ├── Unavailable        5   nothing is known: the other side did not answer
    │   ├── HostUnreachable
    │   ├── BackendUnreachable
    │   └── Unwritable
    ├── Rejected           6   a backend, engine or server refused
    │   └── Impossible
    ├── TimedOut           7   a wait ended without what it waited for
    ├── Fenced             8   another host took over; this one must stop writing
    ├── HostFault          9   unexpected internal error; the host's log has it under the id in the message
    └── Interrupted      130   the user pressed Ctrl-C; the message says how to go on

The numbers are the exit codes of the command line (`docs/exit-codes.md`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class RemudaError(Exception):
    """Root of all errors that a user can meet.

    Args:
        message: one sentence with the values in it, no trailing full stop.
        hint: what to do about it, one sentence; shown on a line of its own.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.said = ""
        """What another process wrote to stderr before it raised this."""


class InputError(RemudaError):
    """A file, flag or value that the user gave is wrong.

    Args:
        message: what was wrong.
        hint: what to do.
        where: `file:line:column`, a flag's name, or empty.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.where = where


class NoSuchCluster(InputError):
    """The user's settings lead to no such cluster any more: it is not in them, or another one is in its place."""


class NotFound(RemudaError):
    """No workload, job, file or row of that name."""

    exit_code: ClassVar[int] = 3


class Conflict(RemudaError):
    """It exists already, or its state forbids the request."""

    exit_code: ClassVar[int] = 4


class NotPrivate(Conflict):
    """What should be the user's alone is somebody else's, or could be: nothing in it is trusted."""


class Unavailable(RemudaError):
    """The other side did not answer: nothing is known, so nothing may be concluded."""

    exit_code: ClassVar[int] = 5


class HostUnreachable(Unavailable):
    """The host process does not answer on its socket."""


class BackendUnreachable(Unavailable):
    """A scheduler or cluster did not answer; no state may change because of it."""


class Unwritable(Unavailable):
    """Nothing can be recorded now: the disk is full, or the file is gone. What is to end is ended all the same."""


class Rejected(RemudaError):
    """A backend, engine or server understood the request and refused it."""

    exit_code: ClassVar[int] = 6


class Impossible(Rejected):
    """Refused, and it will be refused for as long as it is asked like this."""


class TimedOut(RemudaError):
    """A wait ended without what it waited for."""

    exit_code: ClassVar[int] = 7


class Fenced(RemudaError):
    """Another host holds the lease; this process must not write any more."""

    exit_code: ClassVar[int] = 8


class HostFault(RemudaError):
    """Unexpected internal error of the host. Its log has the traceback, under the id that the message names."""

    exit_code: ClassVar[int] = 9


class Interrupted(RemudaError):
    """The user stopped it; the message says how to go on."""

    exit_code: ClassVar[int] = 130


@contextmanager
def located(where: str) -> Iterator[None]:
    """Name the place of what is wrong within, where the error does not."""
    try:
        yield
    except InputError as error:
        if error.where:
            raise
        raise InputError(error.message, hint=error.hint, where=where) from error


def to_json(error: RemudaError) -> dict[str, str]:
    """What another process needs to raise the same."""
    said = {"said": error.said} if error.said else {}
    return {"type": type(error).__name__, "message": str(error), "hint": error.hint, **said}


def from_json(data: Mapping[str, object]) -> RemudaError:
    """The error of `to_json`; of a class that this version does not know, the root of all."""
    found = globals().get(str(data["type"]))
    kind = found if isinstance(found, type) and issubclass(found, RemudaError) else RemudaError
    error = kind(str(data["message"]), hint=str(data.get("hint", "")))
    error.said = str(data.get("said", ""))
    return error
