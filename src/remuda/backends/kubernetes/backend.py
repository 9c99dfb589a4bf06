"""Kubernetes as a place where tasks run: a Job of one pod is an allocation; its name and annotation say the token."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.base import Cluster, Feature, Handle, Life, Log, Observed, Rendered, Request, Stray, is_token
from remuda.backends.kubernetes import config
from remuda.backends.kubernetes.client import Exists, KubernetesClient
from remuda.backends.kubernetes.observing import ENDS, JOB, Seen, is_over, is_suspended, moment, observed, vanished
from remuda.backends.kubernetes.output import LOG, Keeper
from remuda.backends.kubernetes.render import (
    HOME,
    TOKENS,
    cluster_of,
    job_name,
    labels_of,
    node_program,
    objects_of,
    render,
    selector,
)
from remuda.backends.kubernetes.sending import with_secrets
from remuda.backends.lastword import buried, with_record
from remuda.backends.left import EVIDENCE, Left
from remuda.backends.logs import Logs
from remuda.backends.reportkey import report_key
from remuda.backends.tail import last_text
from remuda.base.disk.files import write_atomic
from remuda.base.disk.private import make_private
from remuda.base.errors import BackendUnreachable, InputError, NotFound, NotPrivate, Rejected, RemudaError
from remuda.wire.exit import ExitRecord, unseal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.backends.kubernetes.render import Doc, KubernetesSite
    from remuda.wire.place import Place

CLUSTER: Final = "cluster.json"
"""In the directory of an allocation: where it was sent, as `cluster_of` has it, with context and namespace."""
_AT_ONCE: Final = 16
"""Requests of one kind under way."""
_LOOK_AGAIN_S: Final = 1.0
"""Between two looks for a pod whose output is followed."""
_LAST_OUTPUT_S: Final = 10.0
"""A look waits so long for the output of what has ended; what is left is taken when it is asked for."""
Where = tuple[tuple[str, str], ...]
"""A cluster and namespace, as `cluster_of` has them."""


class KubernetesBackend:
    """Runs allocations as Jobs in namespaces of the clusters that this user's kubeconfig knows.

    Args:
        site: where files are.
        poll_s: between two looks when nothing happens.
        hurry_s: the same while something is about to end.
        environ: where `KUBECONFIG` is looked for; None: that of this process.
    """

    name = "kubernetes"
    features = frozenset({Feature.EXCLUDE_NODES})

    def __init__(
        self,
        site: KubernetesSite,
        *,
        poll_s: float = 5.0,
        hurry_s: float = 1.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.site = site
        self.poll_s, self.hurry_s = poll_s, min(poll_s, hurry_s)
        self.files = Left(site.workloads)
        self._environ = os.environ if environ is None else environ
        self._logs, self._keeper = Logs(), Keeper(self.files)
        self._clients: dict[Where, KubernetesClient] = {}
        self._has_program: set[Where] = set()
        self._stuck: set[str] = set()
        """Of which the last look said that they never start."""
        self._places: dict[str, Where] = {}
        self._room, self._lock = asyncio.Semaphore(_AT_ONCE), asyncio.Lock()

    def render(self, request: Request) -> Rendered:
        """Say what `submit` would send. Pure.

        Raises:
            InputError: Kubernetes cannot be asked for it.
        """
        return render(request, self.site)

    def as_sent(self, rendered: Sequence[Rendered]) -> Sequence[Rendered]:
        """Each is a Job."""
        return rendered

    async def check(self, calls: Sequence[Rendered]) -> None:
        """Let the server look at a Job of each group that would be made, quotas and webhooks too.

        Raises:
            InputError: it refuses one for good, or nobody here is known there.
        """
        try:
            for call in {call.token.rsplit(".", 3)[0]: call for call in calls}.values():
                with suppress(Exists, BackendUnreachable):
                    await self._client(_where(cluster_of(call))).dry_run("jobs", objects_of(call)[0])
        except NotFound as error:
            raise InputError(str(error), where="namespace") from error
        except Rejected as error:
            raise InputError(str(error)) from error
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections; a later call opens others."""
        await self._keeper.close()
        clients, self._clients = [*self._clients.values()], {}
        for client in clients:
            await client.close()

    def _client(self, where: Where) -> KubernetesClient:
        """Who talks to a cluster.

        Raises:
            InputError: it is not known here.
        """
        if where not in self._clients:
            access = config.load(**dict(where), environ=self._environ, home=Path.home())  # type: ignore[arg-type]
            self._clients[where] = KubernetesClient(access)
        return self._clients[where]

    # --- submitting --------------------------------------------------------------------------------------------------

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        """Make Jobs, suspended, each with its Secret; those that exist already are found instead."""
        return await asyncio.gather(*map(self._send, rendered))

    async def _send(self, item: Rendered) -> Handle | Exception:
        try:
            if self.files.is_buried(item.token):
                return Handle(item.token)
            where = self._place(item)
            await asyncio.to_thread(self._prepare, item, where)
            async with self._room:
                client = self._client(where)
                async with self._lock:
                    if where not in self._has_program:
                        with suppress(Exists):
                            await client.create("configmaps", node_program(self.site))
                        self._has_program.add(where)
                return Handle(item.token, await self._make(client, item))
        except InputError as error:
            # Credentials and files may be mended while it waits; nothing of it is the task's own failure.
            return BackendUnreachable(str(error))
        except RemudaError as error:
            return error

    def _place(self, item: Rendered) -> Where:
        """Where an allocation goes, and stays, whichever context is current later.

        Raises:
            BackendUnreachable: that was written down, and cannot be read.
            InputError: no cluster is known here.
        """
        with suppress(FileNotFoundError):
            return _sent(Path(self.files.folder(item.token)) / CLUSTER)
        said = cluster_of(item)
        access = self._client(_where(said)).access
        known = {"context": access.name, "namespace": access.namespace}
        return _where(said | {name: value for name, value in known.items() if value})

    def _prepare(self, item: Rendered, where: Where) -> None:
        """Write down where it goes before it exists."""
        try:
            folder = make_private(Path(self.files.folder(item.token)), below=self.site.workloads)
            for path, text in item.files.items():
                write_atomic(Path(path), text, mode=0o600, sync=False)
            write_atomic(folder / CLUSTER, json.dumps(dict(where)) + "\n", mode=0o600)
        except (OSError, NotPrivate) as error:
            raise BackendUnreachable(f"cannot write the files of {item.token}: {error}") from error

    async def _make(self, client: KubernetesClient, item: Rendered) -> str:
        """Make the Job and what it owns, or find them; its name."""
        job, secret = objects_of(item)
        name = str(job["metadata"]["name"])
        filled = await asyncio.to_thread(with_secrets, secret, item.token, self.site)
        try:
            made = await client.create("jobs", job)
        except Exists:
            made = await client.read("jobs", name) or {}
            if made and not self._is_ours(made, item.token):
                raise Rejected(f"there is a Job {name} already, which is not this run's") from None
        if not made or "deletionTimestamp" in made["metadata"]:
            raise BackendUnreachable(f"the Job {name} is just being deleted")
        uid = made["metadata"]["uid"]
        filled["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}]
        try:
            await client.create("secrets", filled)
        except Exists:
            known = await client.read("secrets", name) or {"metadata": {}}
            owners = [one.get("uid") for one in known["metadata"].get("ownerReferences") or ()]
            if uid not in owners:
                raise BackendUnreachable(f"the Secret {name} of an earlier Job is just being deleted") from None
        except Rejected:
            await client.delete("jobs", name, uid=uid)
            raise
        return name

    def _is_ours(self, job: Doc, token: str) -> bool:
        """Whether a Job is the allocation, and of this home."""
        said = job["metadata"].get("annotations") or {}
        return token in str(said.get(TOKENS, "")).split() and said.get(HOME) == str(self.site.workloads.parent)

    async def release(self, handles: Sequence[Handle]) -> None:
        """Let Jobs start that are suspended; those that have gone are left alone.

        Raises:
            BackendUnreachable: no answer.
        """
        await asyncio.gather(*map(self._release, handles))

    async def _release(self, handle: Handle) -> None:
        if not handle.native:
            return
        async with self._room:
            client = self._client(self._where_of(handle.token))
            await client.patch("jobs", handle.native, {"spec": {"suspend": False}})

    async def find(self, tokens: Sequence[str]) -> Mapping[str, Handle]:
        """Jobs of these tokens. One that is suspended and lacks its Secret is not whole: it is submitted again.

        Raises:
            BackendUnreachable: no answer.
        """
        try:
            return await self._find(tokens)
        except (InputError, Rejected) as error:
            raise BackendUnreachable(str(error)) from error

    async def _find(self, tokens: Sequence[str]) -> dict[str, Handle]:
        found: dict[str, Handle] = {}
        for where, mine in self._by_cluster(tokens).items():
            client = self._client(where)
            jobs = Seen(await client.list("jobs", selector(labels_of(self.site))), ()).jobs
            for token in mine:
                job = jobs.get(job_name(token))
                if job is None or not self._is_ours(job, token):
                    continue
                if not is_suspended(job) or await client.read("secrets", job_name(token)) is not None:
                    found[token] = Handle(token, job_name(token))
        return found

    def _by_cluster(self, tokens: Iterable[str]) -> dict[Where, list[str]]:
        """Where each allocation was sent; those that never were are left out."""
        found: dict[Where, list[str]] = {}
        for token in tokens:
            with suppress(FileNotFoundError):
                place = self._places.get(token) or _sent(Path(self.files.folder(token)) / CLUSTER)
                found.setdefault(place, []).append(token)
                self._places[token] = place
        return found

    def _where_of(self, token: str) -> Where:
        return next(iter(self._by_cluster([token])), ())

    # --- observing ---------------------------------------------------------------------------------------------------

    async def observe(self, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """State of all handles: one list of Jobs and one of Pods of each namespace.

        Raises:
            BackendUnreachable: no answer.
        """
        by_token, seen = {handle.token: handle for handle in handles}, dict[str, Observed]()
        silent: dict[str, RemudaError] = {}
        for where, tokens in self._by_cluster(by_token).items():
            try:
                seen |= await self._look(where, [by_token[token] for token in tokens])
            except RemudaError as error:  # others are told of all the same
                silent |= dict.fromkeys(tokens, error)
        if silent and not seen:
            raise next(iter(silent.values()))
        seen |= {token: self._unknown(by_token[token]) for token in by_token.keys() - seen.keys() - silent.keys()}
        before, self._stuck = self._stuck, {token for token, one in seen.items() if one.never}
        self._keeper.forget(set(by_token))
        self._places = {token: place for token, place in self._places.items() if token in by_token}
        return {token: one if token in before else replace(one, never="") for token, one in seen.items()}

    async def _look(self, where: Where, handles: Sequence[Handle]) -> dict[str, Observed]:
        """One cluster and namespace; what ends there is followed, and what has ended is kept."""
        client = self._client(where)
        jobs, pods = await asyncio.gather(
            *(client.list(kind, selector(labels_of(self.site))) for kind in ("jobs", "pods"))
        )
        look, seen = Seen(jobs, pods), dict[str, Observed]()
        for handle in handles:
            seen[handle.token] = self._observed(handle, look)
        await asyncio.gather(*(self._kept(client, look, token, one) for token, one in seen.items()))
        return {token: self._with_evidence(token, one) for token, one in seen.items()}

    def _observed(self, handle: Handle, look: Seen) -> Observed:
        name = job_name(handle.token)
        job = look.jobs.get(name)
        if job is not None and not self._is_ours(job, handle.token):
            job = None
        return observed(name, job, look.pod(name), partial(self._last_word, handle.token)) or self._unknown(handle)

    def _last_word(self, token: str, message: str) -> ExitRecord | None:
        """The exit record of a termination message, which is kept: the Job goes some day."""
        record = unseal(message, report_key(self.site.workloads, token), token)
        path = Path(self.files.folder(token)) / "exit.json"
        if record is not None and not path.exists():
            with suppress(OSError):
                write_atomic(path, record.to_json() + "\n", mode=0o600)
        return record

    def _unknown(self, handle: Handle) -> Observed:
        """Nothing of it is there."""
        record = self.files.exit_record(handle.token)
        if record is not None:
            return with_record(Observed(Life.ENDED, handle.native, "deleted"), record)
        if self.files.is_buried(handle.token):
            seen = buried(handle.native)
            return replace(seen, reason="ended as it was asked to") if handle.native else seen
        return vanished(handle.native) if handle.native else Observed(Life.GONE, reason="no Job of it is known")

    async def _kept(self, client: KubernetesClient, look: Seen, token: str, seen: Observed) -> None:
        """Take the output of what ends, as long as its pod is there."""
        pod = look.pod(job_name(token))
        if seen.life is Life.ENDED:
            await self._keeper.finish(token)
            with suppress(RemudaError, TimeoutError):
                async with asyncio.timeout(_LAST_OUTPUT_S), self._room:
                    if pod is not None:
                        await self._keeper.fetch(client, pod, token)
        elif seen.native_state == ENDS and pod is not None:
            await self._keeper.follow(client, pod, token)

    def _with_evidence(self, token: str, seen: Observed) -> Observed:
        if seen.life is not Life.ENDED or seen.evidence:
            return seen
        return replace(seen, evidence=last_text(Path(self.files.folder(token)) / LOG, EVIDENCE))

    # --- ending ------------------------------------------------------------------------------------------------------

    async def cancel(self, handle: Handle, *, force: bool = False) -> None:
        """End an allocation within its own grace, or by force within a second; one that has not begun never does.

        Raises:
            BackendUnreachable: no answer.
        """
        await asyncio.to_thread(self.files.bury, handle.token)
        for where in self._by_cluster([handle.token]):
            await self._delete(self._client(where), handle.token, force=force, is_followed=True)

    async def _delete(self, client: KubernetesClient, token: str, *, force: bool, is_followed: bool = False) -> None:
        name = job_name(token)
        async with self._room:
            job = await client.read("jobs", name)
            pods = await client.list("pods", f"{JOB}={name}")
            if job is not None and token not in str((job["metadata"].get("annotations") or {}).get(TOKENS, "")).split():
                return
            for pod in pods:
                if is_followed and pod["status"].get("phase") == "Running":
                    await self._keeper.follow(client, pod, token)
                if force:
                    await client.delete("pods", pod["metadata"]["name"], uid=pod["metadata"]["uid"], grace_s=1)
            if job is not None and "deletionTimestamp" not in job["metadata"] and not is_over(job):
                await client.delete("jobs", name, uid=job["metadata"]["uid"])

    async def list_all(self) -> Sequence[Stray]:
        """This user's Jobs that wait or run, in every namespace that this home has asked for anything.

        Raises:
            BackendUnreachable: no answer.
        """
        found = []
        mine = selector(labels_of(self.site, home=False))
        for where in await asyncio.to_thread(self._known):
            client = self._client(where)
            jobs, pods = await asyncio.gather(*(client.list(kind, mine) for kind in ("jobs", "pods")))
            look = Seen(jobs, pods)
            found += [stray for name in look.jobs for stray in _strays(name, look)]
        return found

    def _known(self) -> list[Where]:
        found = dict[Where, None]()
        for path in self.site.workloads.glob(f"*/*/*/{CLUSTER}"):
            with suppress(FileNotFoundError, BackendUnreachable):
                found[_sent(path)] = None
        return [*found]

    async def remove(self, stray: Stray, *, force: bool = False) -> None:
        """End a Job that `list_all` has named.

        Raises:
            BackendUnreachable: no answer.
        """
        for where in await asyncio.to_thread(self._known):
            await self._delete(self._client(where), stray.token, force=force)

    # --- the rest ----------------------------------------------------------------------------------------------------

    async def cluster(self) -> Cluster:
        """Nothing: nodes of a cluster that others look after are not listed."""
        return Cluster((), ())

    def logs(self, handle: Handle, *, follow: bool = False, tail: int = 0, after: Place | None = None) -> Log:
        """The task's output; with `follow`, what comes for as long as the allocation lives."""
        path = Path(self.files.folder(handle.token)) / LOG

        async def found() -> Log:
            with suppress(RemudaError):
                await self._taken(handle)
            return self._logs.read(path, tail, partial(self._until_ended, handle) if follow else None, after)

        return Log.later(found)

    async def _taken(self, handle: Handle, *, follow: bool = False) -> bool:
        """Take what is new of an allocation's output; whether it has ended."""
        name, life = job_name(handle.token), Life.GONE
        for where in self._by_cluster([handle.token]):
            client = self._client(where)
            job, pods = await asyncio.gather(client.read("jobs", name), client.list("pods", f"{JOB}={name}"))
            look = Seen([job] if job is not None else [], pods)
            life, pod = self._observed(handle, look).life, look.pod(name)
            if pod is not None and life is not Life.PENDING:
                await self._keeper.fetch(client, pod, handle.token, follow=follow and life is Life.RUNNING)
        return life in (Life.ENDED, Life.GONE)

    async def _until_ended(self, handle: Handle) -> None:
        """Follow its output until it has ended, however often that breaks off."""
        while True:
            with suppress(RemudaError):
                if await self._taken(handle, follow=True):
                    return
            await asyncio.sleep(_LOOK_AGAIN_S)


def _where(said: Mapping[str, str]) -> Where:
    return tuple(sorted(said.items()))


def _sent(path: Path) -> Where:
    """What `CLUSTER` says.

    Raises:
        FileNotFoundError: it was never sent anywhere.
        BackendUnreachable: it cannot be read.
    """
    try:
        return _where(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, AttributeError) as error:
        raise BackendUnreachable(f"{path} cannot be read: {error}") from error


def _strays(name: str, look: Seen) -> list[Stray]:
    job = look.jobs[name]
    seen, said = observed(name, job, look.pod(name), lambda _: None), job["metadata"].get("annotations") or {}
    if seen is None or seen.life not in (Life.PENDING, Life.RUNNING):
        return []
    return [
        Stray(token, name, seen.life, seen.native_state, seen.node, moment(job["metadata"]["creationTimestamp"]),
              str(said.get(HOME, "")))
        for token in str(said.get(TOKENS, "")).split() if is_token(token)
    ]  # fmt: skip
