"""The host's planner: each document is planned in a process of its own, which sees what its command saw."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import redirect_stderr, suppress
from io import StringIO
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.base.errors import HostUnreachable, RemudaError, TimedOut, from_json, to_json
from remuda.look.kinds import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnContext

    Answer = Callable[[Connection, Mapping[str, Any]], None]

LIMIT_S: Final = 180.0
PLACES: Final = max(2, min(16, os.cpu_count() or 1))
"""Processes that plan at the same time, a thread of the host for each."""
PLACE_S: Final = 5.0
"""How long a document waits for one: what hangs in an engine's `--help` holds up nobody else for longer."""
_ENDED_S: Final = 1.0
"""A process that was killed and waits for a file server may go on; nobody waits for that."""
_KNOWN: Final = ["remuda.look.planning", *READERS.values()]


class Planner:
    """Plans beside the host's loop. What has to be loaded for it is loaded once, by the first plan.

    Args:
        home: state directory of the host, whatever a caller says.
        answer: what each process does with its end of a pipe and what was asked.
    """

    method = "forkserver"

    def __init__(self, home: str, answer: Answer | None = None) -> None:
        self._context = cast("SpawnContext", get_context(self.method))
        self._home = home
        self._work = answer or _answer
        self._places = asyncio.Semaphore(PLACES)

    async def plan(self, asked: Mapping[str, Any]) -> bytes:
        """The JSON of `planning.answer`.

        Args:
            asked: the arguments of that, and `caller`, where the command was typed.

        Raises:
            RemudaError: as that does.
            HostUnreachable: no process could plan it now, or it died; the command plans by itself then.
            TimedOut: it took too long.
        """
        try:
            async with asyncio.timeout(PLACE_S):
                await self._places.acquire()
        except TimeoutError:
            raise HostUnreachable(f"the host plans {PLACES} other documents") from None
        try:
            raw = await asyncio.to_thread(self._apart, asked)
        finally:
            self._places.release()
        if raw.startswith(b'{"error"'):
            raise from_json(json.loads(raw)["error"])
        return raw

    def _apart(self, asked: Mapping[str, Any]) -> bytes:
        self._context.set_forkserver_preload(_KNOWN)
        mine, its = self._context.Pipe(duplex=False)
        own = (self._work, its, {**asked, "home": self._home})
        process = self._context.Process(target=_in_group, args=own, daemon=True)
        with mine, its:
            try:
                process.start()
                its.close()
                if not mine.poll(LIMIT_S):
                    raise TimedOut(f"planning has not ended after {LIMIT_S:g} s")
                return mine.recv_bytes()
            except (EOFError, OSError) as error:
                raise HostUnreachable("planning ended without an answer", hint="see remuda host logs") from error
            finally:
                if process.pid is not None:
                    with suppress(ProcessLookupError):  # none yet
                        os.killpg(process.pid, signal.SIGKILL)
                    process.kill()
                    process.join(_ENDED_S)


def _in_group(work: Answer, line: Connection, asked: Mapping[str, Any]) -> None:
    """Do it as the head of a group of processes: an engine that was asked for its help ends with it."""
    os.setpgid(0, 0)
    work(line, asked)


def _answer(line: Connection, asked: Mapping[str, Any]) -> None:
    """Plan as the command would, and send the answer."""
    from remuda.look import planning

    caller, said = asked["caller"], StringIO()
    os.nice(5)  # who looks after what runs goes first
    os.environ.clear()
    os.environ.update({**caller["env"], "REMUDA_HOME": asked["home"]})
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123
    try:
        _enter(caller["cwd"])
        with redirect_stderr(said):
            found = planning.answer(
                asked["kind"], asked["words"], dry_run=asked["dry_run"], write=asked["write"]
            )  # fmt: skip
    except RemudaError as error:
        error.said = said.getvalue()
        line.send_bytes(json.dumps({"error": to_json(error)}).encode())
    else:
        line.send_bytes(json.dumps({**found, "said": said.getvalue()}).encode())


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        sentence = f"the host cannot work in {folder}: {(error.strerror or '').lower()}"
        raise HostUnreachable(sentence) from error
