"""Kubernetes as a place where tasks run: a Job of one pod is an allocation; its name and annotation say the token."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.base import Cluster, Feature, Handle, Life, Log, Observed, Rendered, Request, Stray
from remuda.backends.kubernetes import config
from remuda.backends.kubernetes.checking import Exists, check
from remuda.backends.kubernetes.observing import ENDS, JOB, Seen, is_over, is_suspended, observed, strays, vanished
from remuda.backends.kubernetes.output import LOG, Keeper
from remuda.backends.kubernetes.places import CLUSTER, SERVER, sent_anywhere, sent_to, where_of
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
from remuda.backends.kubernetes.sending import letting_go, reports_to, with_secrets
from remuda.backends.kubernetes.turns import QueueTurns
from remuda.backends.lastword import buried, with_record
from remuda.backends.left import EVIDENCE, Left
from remuda.backends.logs import Logs
from remuda.backends.reportkey import report_key
from remuda.backends.rundir import previous_dir
from remuda.backends.tail import last_text
from remuda.base.disk.files import write_atomic
from remuda.base.disk.private import make_private
from remuda.base.errors import BackendUnreachable, InputError, NoSuchCluster, NotPrivate, Rejected, RemudaError
from remuda.wire.exit import ExitRecord, unseal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from remuda.backends.kubernetes.client import KubernetesClient
    from remuda.backends.kubernetes.places import Where
    from remuda.backends.kubernetes.render import Doc, KubernetesSite
    from remuda.wire.place import Place

_AT_ONCE: Final = 16
"""Requests of one kind under way."""
_LOOK_AGAIN_S: Final = 1.0
"""Between two looks for a pod whose output is followed."""
_LAST_OUTPUT_S: Final = 10.0
"""A look waits so long for the output of what has ended; what is left is taken when it is asked for."""
_CHECK_S: Final = 10.0
"""A cluster that is asked beforehand has answered by then."""
_REPORTS_S: Final = 30.0
"""A pod that reaches the host has reported by then."""


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
        self._logs, self._keeper, self._turns = Logs(), Keeper(self.files), QueueTurns()
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
        """Let each cluster that would be asked look at a Job of each group; see `checking.check`, which raises."""
        jobs: dict[Where, list[Doc]] = {}
        for call in {call.token.rsplit(".", 3)[0]: call for call in calls}.values():
            jobs.setdefault(where_of(cluster_of(call)), []).append(objects_of(call)[0])
        for where, mine in jobs.items():
            async with self._once(where, timeout_s=_CHECK_S) as client:
                await check(client, mine)

    async def close(self) -> None:
        """Close the connections; a later call opens others."""
        await self._keeper.close()
        clients, self._clients = [*self._clients.values()], {}
        for client in clients:
            await client.close()

    def _client(self, where: Where) -> KubernetesClient:
        """Who talks to a cluster; raises what `_access` does."""
        if where not in self._clients:
            self._clients[where] = self._connect(where)
        return self._clients[where]

    def _connect(self, where: Where, *, timeout_s: float = 30.0) -> KubernetesClient:
        from remuda.backends.kubernetes.client import KubernetesClient  # most hosts have no cluster to talk to

        return KubernetesClient(self._access(where), timeout_s=timeout_s)

    def _access(self, where: Where) -> config.Access:
        """The way to a cluster.

        Raises:
            InputError: it is not known here, or its context leads to another server than it did.
        """
        said = dict(where)
        before = said.pop(SERVER, "")
        access = config.load(**said, environ=self._environ, home=Path.home())  # type: ignore[arg-type]
        if before and access.server != before:
            raise NoSuchCluster(
                f"{access.context} leads to {access.server} now, and this was sent to {before}",
                hint=f"let it lead there again; if both are one cluster, change `{SERVER}` in {CLUSTER} of the attempt",
            )
        return access

    async def _forget(self, where: Where) -> None:
        """Read its kubeconfig anew when it is asked again."""
        if (client := self._clients.pop(where, None)) is not None:
            await client.close()

    @asynccontextmanager
    async def _once(self, where: Where, *, timeout_s: float = 30.0) -> AsyncIterator[KubernetesClient]:
        """The same for one question, as it is asked in loops that end with it."""
        client = self._connect(where, timeout_s=timeout_s)
        try:
            yield client
        finally:
            await client.close()

    # --- submitting --------------------------------------------------------------------------------------------------

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        """Make Jobs, suspended, each with its Secret; those that exist already are found instead."""
        return await asyncio.gather(*map(self._send, rendered))

    async def _send(self, item: Rendered) -> Handle | Exception:
        where: Where = ()
        try:
            if self.files.is_buried(item.token):
                return Handle(item.token)
            where = self._place(item)
            await asyncio.to_thread(self._prepare, item)
            async with self._room:
                client = self._client(where)
                async with self._lock:
                    if where not in self._has_program:
                        await self._send_program(client)
                        self._has_program.add(where)
                await asyncio.to_thread(self._note, item.token, where)
                return Handle(item.token, await self._make(client, item))
        except InputError as error:
            await self._forget(where)  # what is wrong there may be put right meanwhile, and is no failure of the task
            return BackendUnreachable(str(error))
        except RemudaError as error:
            return error

    async def _send_program(self, client: KubernetesClient) -> None:
        """See that the node program is there, and exactly ours: whoever may write there could have made another."""
        ours = node_program(self.site)
        try:
            await client.create("configmaps", ours)
        except Exists:
            name = ours["metadata"]["name"]
            known = await client.read("configmaps", name) or {}
            if known.get("binaryData") != ours["binaryData"] or not known.get("immutable"):
                raise Rejected(
                    f"the ConfigMap {name} there is not remuda's", hint=f"kubectl delete configmap {name}"
                ) from None

    def _place(self, item: Rendered) -> Where:
        """Where an allocation goes, and stays: where the attempt before went, whichever context is current later.

        Raises:
            BackendUnreachable: that was written down, and cannot be read.
            InputError: no cluster is known here.
        """
        before = previous_dir(self.site.workloads, item.token)
        for folder in (Path(self.files.folder(item.token)), *([before] if before is not None else [])):
            if (place := sent_to(folder / CLUSTER)) is not None:
                return place
        said = cluster_of(item)
        access = self._access(where_of(said))
        known = {"context": access.name, "namespace": access.namespace, SERVER: access.server}
        return where_of(said | {name: value for name, value in known.items() if value})

    def _prepare(self, item: Rendered) -> None:
        try:
            make_private(Path(self.files.folder(item.token)), below=self.site.workloads)
            for path, text in item.files.items():
                write_atomic(Path(path), text, mode=0o600, sync=False)
        except (OSError, NotPrivate) as error:
            raise BackendUnreachable(f"cannot write the files of {item.token}: {error}") from error

    def _note(self, token: str, where: Where) -> None:
        """Write down where it goes before it can exist there: without that, nothing was ever asked for."""
        try:
            write_atomic(Path(self.files.folder(token)) / CLUSTER, json.dumps(dict(where)) + "\n", mode=0o600)
        except OSError as error:
            raise BackendUnreachable(f"cannot write where {token} goes: {error}") from error

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
        change = letting_go(Path(self.files.folder(handle.token)))
        async with self._room:
            for where in self._by_cluster([handle]):
                await self._client(where).patch("jobs", handle.native, change)

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
        for where, mine in self._by_cluster(map(Handle, tokens)).items():
            client = self._client(where)
            jobs = Seen(await client.list("jobs", selector(labels_of(self.site))), ()).jobs
            for token in (handle.token for handle in mine):
                job = jobs.get(job_name(token))
                if job is None or not self._is_ours(job, token):
                    continue
                if not is_suspended(job) or await client.read("secrets", job_name(token)) is not None:
                    found[token] = Handle(token, job_name(token))
        return found

    def _by_cluster(self, handles: Iterable[Handle]) -> dict[Where, list[Handle]]:
        """Where each allocation was sent; those that never were are left out.

        Where only its directory knew that, and is gone, it was the usual cluster.
        """
        found: dict[Where, list[Handle]] = {}
        for handle in handles:
            place = self._places.get(handle.token)
            if place is None:
                place = sent_to(Path(self.files.folder(handle.token)) / CLUSTER)
            if place is not None:
                self._places[handle.token] = place
            elif not handle.native:
                continue
            found.setdefault(place or (), []).append(handle)
        return found

    # --- observing ---------------------------------------------------------------------------------------------------

    async def observe(self, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """State of all handles: one list of Jobs and one of Pods of each namespace.

        Raises:
            BackendUnreachable: no answer.
        """
        by_token, seen = {handle.token: handle for handle in handles}, dict[str, Observed]()
        silent: dict[str, RemudaError] = {}
        for where, mine in self._by_cluster(handles).items():
            try:
                seen |= await self._look(where, mine)
            except RemudaError as error:  # others are told of all the same
                silent |= dict.fromkeys((handle.token for handle in mine), error)
                if isinstance(error, InputError):
                    await self._forget(where)
        if silent and not seen:
            raise next(iter(silent.values()))
        seen |= {token: self._unknown(by_token[token]) for token in by_token.keys() - seen.keys() - silent.keys()}
        before, self._stuck = self._stuck, {token for token, one in seen.items() if one.never}
        self._keeper.forget(set(by_token))
        self._turns.forget(set(by_token))
        self._places = {token: place for token, place in self._places.items() if token in by_token}
        return {token: one if token in before else replace(one, never="") for token, one in seen.items()}

    async def _look(self, where: Where, handles: Sequence[Handle]) -> dict[str, Observed]:
        """One cluster and namespace; what ends there is followed, and what has ended is kept."""
        client = self._client(where)
        mine = selector(labels_of(self.site))
        jobs, pods = await asyncio.gather(*(client.list(kind, mine) for kind in ("jobs", "pods")))
        look, mute = Seen(jobs, pods), await asyncio.to_thread(reports_to, self.site)
        seen = {handle.token: self._observed(handle, look, mute) for handle in handles}
        await asyncio.gather(*(self._kept(client, look, token, one) for token, one in seen.items()))
        return {token: self._with_evidence(token, one) for token, one in seen.items()}

    def _observed(self, handle: Handle, look: Seen, mute: str = "") -> Observed:
        name = job_name(handle.token)
        job = look.jobs.get(name)
        if job is not None and not self._is_ours(job, handle.token):
            job = None
        seen = observed(name, job, look.pod(name), partial(self._last_word, handle.token)) or self._unknown(handle)
        if seen.native_state == "Running":
            is_new = 0 <= time.time() - seen.started_at < _REPORTS_S
            seen = replace(seen, unread=False) if is_new else replace(seen, mute=mute)
        return self._turns.counted(handle.token, seen)

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
        for where in self._by_cluster([handle]):
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
                if force or job is None:  # a Job that was deleted without its pods
                    meta, grace_s = pod["metadata"], 1 if force else None
                    await client.delete("pods", meta["name"], uid=meta["uid"], grace_s=grace_s)
            if job is not None and "deletionTimestamp" not in job["metadata"] and not is_over(job):
                await client.delete("jobs", name, uid=job["metadata"]["uid"])

    async def list_all(self) -> Sequence[Stray]:
        """This user's that wait or run, in every namespace that this home has used and the kubeconfig leads to.

        Raises:
            BackendUnreachable: no answer.
            InputError: the kubeconfig leads there, and cannot be used, or the server does not know who asks.
        """
        found = []
        mine = selector(labels_of(self.site, home=False))
        for where in await asyncio.to_thread(sent_anywhere, self.site.workloads):
            with suppress(NoSuchCluster):
                async with self._once(where) as client:
                    look = Seen(await client.list("jobs", mine), await client.list("pods", mine))
                found += [stray for name in look.names for stray in strays(name, look)]
        return found

    async def remove(self, stray: Stray, *, force: bool = False) -> None:
        """End a Job that `list_all` has named.

        Raises:
            BackendUnreachable: no answer.
        """
        for where in await asyncio.to_thread(sent_anywhere, self.site.workloads):
            with suppress(NoSuchCluster):
                async with self._once(where) as client:
                    await self._delete(client, stray.token, force=force)

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
        for where in self._by_cluster([handle]):
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
