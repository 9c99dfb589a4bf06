"""Whether servers elsewhere are reached from this machine, where that is what asks them: as pods, or in a fleet.

A report that one is ready is taken in when it is.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from remuda.backends.base import TaskKey, read_token
from remuda.specs.places import in_images, is_here
from remuda.supervise.model import GIVEN_UP

if TYPE_CHECKING:
    from remuda.host.service import Service
    from remuda.wire.report import Report

_ASK_S: Final = 5.0
_TRIES: Final = 3
_PAUSE_S: Final = 1.0


class Reach:
    """Stands before the supervisor's inbox.

    A swarm of which no replica was reached before it was up is taken down: its address would refuse all that is asked.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._reached: set[str] = set()
        """Tokens of replicas that were met once; later it is the router's to say, which asks its members all along."""
        self._held: dict[str, Report] = {}
        """The newest report of each that is asked."""
        self._asking: dict[str, asyncio.Task[None]] = {}

    def take(self, report: Report) -> None:
        """Take a report in, or hold it until its replica was met."""
        token = report.token
        if report.state != "ready" or token in self._reached or not self._is_to_be_met(report):
            self._service.supervisor.take(report)
            return
        self._held[token] = report
        if token not in self._asking:
            self._asking[token] = asyncio.create_task(self._ask(token), name=f"the way to {token}")

    async def close(self) -> None:
        """Stop asking."""
        tasks = [*self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_to_be_met(self, report: Report) -> bool:
        try:
            parts = read_token(report.token)
            want = self._service.supervisor.wants[parts.workload]
            group = want.workload.group(parts.group)
        except (ValueError, KeyError):
            return False
        task = self._service.supervisor.tasks(parts.workload).get(TaskKey(parts.workload, parts.group, parts.index))
        is_its = task is not None and task.token == report.token
        is_asked = want.workload.is_asked_here and not is_here(group.backend or want.workload.backend)
        return is_its and is_asked and bool(report.url) and group.role.serves

    async def _ask(self, token: str) -> None:
        """Meet a replica, in a few tries; then its newest report counts, or says why not."""
        try:
            for _ in range(_TRIES):
                if not (why := await _why_not(self._held[token].url)):
                    self._reached.add(token)
                    self._service.supervisor.take(self._held[token])
                    return
                await asyncio.sleep(_PAUSE_S)
            self._not_met(self._held[token], why)
        finally:
            del self._asking[token], self._held[token]

    def _not_met(self, report: Report, why: str) -> None:
        parts = read_token(report.token)
        want = self._service.supervisor.wants.get(parts.workload)
        todo = "run the host in the cluster, or on a machine that reaches the addresses of pods"
        if want is not None and not in_images(want.workload.backend):
            todo = "let this machine reach the ports of that one: a firewall is between them"
        said = f"well by its own report, and not reached from {os.uname().nodename} at {report.url} ({why}): {todo}"
        self._service.supervisor.take(replace(report, state="starting", reason=said))
        is_other_met = any(read_token(token).workload == parts.workload for token in self._reached)
        if want is not None and want.running and not want.announced and not is_other_met:
            self._service.down(parts.workload, f"{GIVEN_UP}{parts.group}/{parts.index}: {said}")


async def _why_not(url: str) -> str:
    """Why nobody is met at an address; empty where somebody is."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_ASK_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except TimeoutError:
        return f"no answer in {_ASK_S:.0f} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""
