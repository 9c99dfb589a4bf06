"""Talks to the API server of a cluster: what there is, making, changing and ending it, and logs."""

from __future__ import annotations

import asyncio
import gc
import re
import ssl
from contextlib import asynccontextmanager, contextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

import aiohttp
import orjson

from remuda.backends.kubernetes.checking import Exists
from remuda.backends.kubernetes.credentials import Credentials, Shown
from remuda.base.clock import SystemClock
from remuda.base.errors import BackendUnreachable, Conflict, Impossible, InputError, NotFound, Rejected, RemudaError
from remuda.base.secrets import MASK
from remuda.base.text import short

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from remuda.backends.kubernetes.config import Access
    from remuda.base.clock import Clock

Doc: TypeAlias = dict[str, Any]
Docs: TypeAlias = list[Doc]

PODGROUPS: Final = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha2")
"""Versions of PodGroups that are known, newest first; both have one shape."""
_CORE: Final = ("pods", "secrets", "configmaps", "services", "events", "nodes")
_VERSIONS: Final = {"jobs": "batch/v1", **dict.fromkeys(_CORE, "v1")}
_REVIEWS: Final = "authorization.k8s.io/v1"
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_PAGE, _LISTS, _AT_ONCE, _LINE, _SAID = 500, 3, 16, 1 << 20, 1000
_DISCOVERED_S, _QUIET_S, _PATIENCE_S, _CONNECT_S = 600.0, 300.0, 20.0, 5.0


class _Gone(NotFound):
    """There is no object of that name."""


class _Expired(BackendUnreachable):
    """A list was asked for in pages for too long."""


class KubernetesClient:
    """One user's view of one namespace of one cluster.

    A kind is its plural: `jobs`, `pods`, `secrets`, `configmaps`, `services`, `events`, `podgroups`, and `nodes`, which
    are of the whole cluster. Every verb raises, beside what it says itself:

    - `BackendUnreachable`: no answer, one that is no API server's, or one that says to ask later. What was asked for
      may have been done all the same.
    - `Rejected`: the server refused, with its own words (400, 403, …); `Impossible` where it always will (413, 422).
    - `NotFound`: there is no such namespace; only `create` and `dry_run` are told, and lists of it are empty.
    - `InputError`: the server does not know who asks, though the credentials were renewed; or they cannot be had.

    No token is in an error.

    Args:
        access: where and who.
        clock: for pauses and for credentials that expire; the machine's own where None.
        timeout_s: after which an answer has not come.
    """

    def __init__(self, access: Access, clock: Clock | None = None, *, timeout_s: float = 30.0) -> None:
        self.access = access
        self._name = f"the API server {access.server}"
        self._clock = clock or SystemClock()
        self._credentials = Credentials(access, self._clock)
        self._timeout_s = timeout_s
        self._sessions: dict[tuple[bytes, bytes], aiohttp.ClientSession] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._discovered: tuple[float, frozenset[str]] = (float("-inf"), frozenset())

    async def create(self, kind: str, body: Doc) -> Doc:
        """Make an object; as the server has it.

        After `BackendUnreachable` it may be there: whoever asked reads it, or creates it once more and takes `Exists`
        for what its first try made, if uid or annotations agree.

        Raises:
            Exists: one of that name is there.
        """
        return await self._ask("POST", await self._path(kind), body)

    async def dry_run(self, kind: str, body: Doc) -> None:
        """Let the server check what `create` would make, with quotas and webhooks, and not make it; raises the same."""
        await self._ask("POST", f"{await self._path(kind)}?dryRun=All", body)

    async def read(self, kind: str, name: str) -> Doc | None:
        """One object; None: there is none of that name."""
        try:
            return await self._ask("GET", await self._path(kind, name))
        except _Gone:
            return None

    async def list(self, kind: str, selector: str = "") -> Docs:
        """All objects of a kind as of one moment, by labels as kubectl's `-l`; they lack `kind` and `apiVersion`."""
        path = await self._path(kind)
        for _ in range(_LISTS):
            found: Docs = []
            page: Doc = {"limit": _PAGE, "labelSelector": selector}
            try:
                while page.get("continue", "first"):
                    said = await self._ask("GET", f"{path}?{urlencode(page)}")
                    found += said.get("items") or ()
                    page["continue"] = (said.get("metadata") or {}).get("continue")
                return found
            except _Expired:
                continue
        raise BackendUnreachable(f"{self._name} expires lists of {kind} before they are read")

    async def patch(self, kind: str, name: str, body: Doc) -> Doc | None:
        """Change an object by a merge patch (RFC 7396): it as it is then; None: it has gone.

        Raises:
            Conflict: the patch names a `resourceVersion` that is no longer the object's.
        """
        try:
            return await self._ask("PATCH", await self._path(kind, name), body, "application/merge-patch+json")
        except _Gone:
            return None

    async def delete(self, kind: str, name: str, *, uid: str = "", grace_s: int | None = None) -> bool:
        """End an object, and in the background what it owns; False: it has gone, or the name is another object's now.

        `uid`: only the object that has it. `grace_s`: what a pod has in place of its own grace; at least 1.
        """
        body: Doc = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        body |= {"preconditions": {"uid": uid}} if uid else {}
        body |= {"gracePeriodSeconds": max(1, grace_s)} if grace_s is not None else {}
        try:
            await self._ask("DELETE", await self._path(kind, name), body)
        except _Gone:
            return False
        except Conflict:
            if not uid:
                raise
            return False
        return True

    async def log(
        self, pod: str, *, container: str, since: str = "", tail: int | None = None, limit: int | None = None,
        follow: bool = False, timestamps: bool = True,
    ) -> AsyncGenerator[bytes, None]:  # fmt: skip
        """Output of a container: whole lines with their ends, as many as were at hand; only the last may lack its end.

        A line of more than a megabyte comes in pieces. `BackendUnreachable` can come in the middle, also where nothing
        came for minutes while it was followed: go on with `since`, a time of RFC 3339 that counts to the second.
        `tail`: the last lines only. `limit`: at most so many bytes. `follow`: until the container ends.

        Raises:
            NotFound: there is no such pod.
            Rejected: its container has not started, with the server's words.
        """
        words = {"container": container, "sinceTime": since, "tailLines": tail, "limitBytes": limit}
        words |= {"follow": "true" if follow else "", "timestamps": "true" if timestamps else ""}
        query = urlencode({name: value for name, value in words.items() if value not in ("", None)})
        limits = aiohttp.ClientTimeout(sock_connect=self._timeout_s, sock_read=_QUIET_S if follow else self._timeout_s)
        rest = b""
        async with self._answer("GET", f"{await self._path('pods', pod)}/log?{query}", limits) as answer:
            async for piece in answer.content.iter_any():
                lines, end, rest = (rest + piece).rpartition(b"\n")
                if len(rest) > _LINE:
                    lines, end, rest = lines + end, rest, b""
                if end:
                    yield lines + end
        if rest:
            yield rest

    async def may(self, verb: str, resource: str) -> bool:
        """Whether who asks may do that; `resource` is a kind, or below one: `pods/log`."""
        kind, _, below = resource.partition("/")
        group = (await self._version_of(kind)).rpartition("/")[0]
        asked = {"verb": verb, "group": group, "resource": kind, "subresource": below}
        asked |= {"namespace": self.access.namespace} if kind != "nodes" else {}
        body = {"apiVersion": _REVIEWS, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        said = await self._ask("POST", f"/apis/{_REVIEWS}/selfsubjectaccessreviews", body)
        return (said.get("status") or {}).get("allowed") is True

    async def version(self) -> tuple[int, int]:
        """The server's version, e.g. `(1, 36)`."""
        said = await self._ask("GET", "/version")
        major, minor = (re.match(r"\d+", str(said.get(name))) for name in ("major", "minor"))
        if major is None or minor is None:
            raise BackendUnreachable(f"{self._name} does not say its version")
        return int(major[0]), int(minor[0])

    async def discover(self) -> frozenset[str]:
        """Groups and versions that are served, e.g. `v1`, `batch/v1`; at most some minutes old."""
        if self._clock.now() - self._discovered[0] > _DISCOVERED_S:
            core, named = await asyncio.gather(self._ask("GET", "/api"), self._ask("GET", "/apis"))
            versions = [one["groupVersion"] for group in named.get("groups") or () for one in group["versions"]]
            self._discovered = self._clock.now(), frozenset([*(core.get("versions") or ()), *versions])
        return self._discovered[1]

    async def close(self) -> None:
        """Close the connections."""
        while self._sessions:
            await self._sessions.popitem()[1].close()

    # One request

    async def _version_of(self, kind: str) -> str:
        if kind in _VERSIONS:
            return _VERSIONS[kind]
        served = await self.discover()
        for version in PODGROUPS:
            if version in served:
                return version
        raise Rejected(f"{self._name} serves no PodGroups")

    async def _path(self, kind: str, name: str | None = None) -> str:
        for word in (self.access.namespace, name):
            if word is not None and not _NAME.fullmatch(word):  # an empty one is a collection, and `..` leads elsewhere
                raise InputError(f"{short(word)!r} is not a name that Kubernetes allows")
        version = await self._version_of(kind)
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        scope = "" if kind == "nodes" else f"/namespaces/{self.access.namespace}"
        return f"{root}{scope}/{kind}" if name is None else f"{root}{scope}/{kind}/{name}"

    async def _ask(self, method: str, path: str, body: Doc | None = None, content: str = "application/json") -> Doc:
        limits = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=_CONNECT_S)
        data = None if body is None else orjson.dumps(body)
        async with self._gate, self._answer(method, path, limits, data, content) as answer:
            said = _document(await answer.read())
        if said is None or ("kind" not in said and path != "/version"):  # whatever else serves JSON has no lists for us
            raise BackendUnreachable(f"{self._name} answered, but not with an object of Kubernetes")
        return said

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, limits: aiohttp.ClientTimeout, data: bytes | None = None, content: str = ""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is no error. Credentials that were refused are renewed, and a busy server is asked again."""
        refused: Shown | None = None
        left_s = _PATIENCE_S
        while True:
            shown = await self._credentials.get(refused)
            headers = {"Accept": "application/json", "User-Agent": "remuda", "Content-Type": content}
            if shown.token and self.access.server.startswith("https:"):
                headers["Authorization"] = f"Bearer {shown.token}"
            with self._silence():
                async with self._session(shown).request(
                    method, self.access.server + path, data=data, headers={k: v for k, v in headers.items() if v},
                    timeout=limits, allow_redirects=False, proxy=self.access.proxy or None,
                    server_hostname=self.access.server_name or None,
                ) as answer:  # fmt: skip
                    if answer.status < 300:
                        yield answer
                        return
                    said, after = await answer.read(), answer.headers.get("Retry-After", "")
            if answer.status == 401 and refused is None and await self._credentials.get(shown) != shown:
                refused = shown
                continue
            pause_s = max(1, int(after)) if after.isdecimal() else 1
            if answer.status != 429 or pause_s > left_s:
                raise self._error(answer.status, said, shown)
            left_s -= pause_s
            await self._clock.sleep(pause_s)

    def _session(self, shown: Shown) -> aiohttp.ClientSession:
        """Connections that show that certificate. Others stay: somebody may be reading there."""
        pair = (shown.certificate, shown.key)
        if pair not in self._sessions:
            connector = aiohttp.TCPConnector(ssl=_context(self.access, shown), limit=0)
            self._sessions[pair] = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._sessions[pair]

    @contextmanager
    def _silence(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise BackendUnreachable(f"{self._name} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:  # which may know what was shown
            why = short(str(error), 300) or type(error).__name__
            raise BackendUnreachable(f"{self._name} cannot be reached: {why}") from None

    def _error(self, status: int, body: bytes, shown: Shown) -> RemudaError:
        if status == 401:
            hint = "log in again, or look at the user of that context"
            return InputError(f"{self._name} rejects the credentials of {self.access.context}", hint=hint)
        said = _document(body) or {}
        if said.get("kind") != "Status":
            return BackendUnreachable(f"{self._name} answered {status}, but not with a status of Kubernetes")
        details, text = said.get("details") or {}, short(str(said.get("message")), _SAID)
        text = f"{self._name}: {text.replace(shown.token, MASK) if shown.token else text}"
        if status == 404 and details.get("name"):
            return (NotFound if details.get("kind") == "namespaces" else _Gone)(text)
        if status == 410:
            return _Expired(text)
        if status == 429 or status >= 500 or (status == 409 and "resourcequotas" in text):  # somebody counted first
            return BackendUnreachable(text)
        if status == 409:
            return (Exists if said.get("reason") == "AlreadyExists" else Conflict)(text)
        return (Impossible if status in (413, 422) else Rejected)(text)


def _document(body: bytes) -> Doc | None:
    was_on = gc.isenabled()
    gc.disable()  # a list is a hundred thousand objects at once, and half of the time went into looking for cycles
    try:
        said = orjson.loads(body)
    except ValueError:
        return None
    finally:
        if was_on:
            gc.enable()
    return said if isinstance(said, dict) else None


def _context(access: Access, shown: Shown) -> ssl.SSLContext:
    """TLS as kubectl does it.

    Raises:
        InputError: certificates or key are none.
    """
    try:
        context = ssl.create_default_context(cadata=access.ca.decode("ascii", "ignore") if access.ca else None)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities of clusters lack what it asks for
        if access.skip_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if shown.certificate:
            with NamedTemporaryFile(prefix="remuda-") as file:  # the library reads them from files only
                file.write(shown.certificate + b"\n" + shown.key)
                file.flush()
                context.load_cert_chain(file.name, password=b"")  # never asks a terminal
    except (OSError, ValueError) as error:
        raise InputError(f"a certificate or key of {access.context} cannot be read: {short(str(error))}") from None
    return context
