"""The client at a cluster that stands in: every verb, and every trouble on the way."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
import traceback
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from remuda.backends.kubernetes.checking import Exists
from remuda.backends.kubernetes.client import KubernetesClient
from remuda.backends.kubernetes.config import EXEC_VERSIONS, Plugin, load
from remuda.base.errors import BackendUnreachable, Conflict, Impossible, InputError, NotFound, Rejected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from tests.fakes.clock import FakeClock

    from remuda.backends.kubernetes.config import Access
    from remuda.testing.kube import KubeBed

Verb = "Callable[[KubernetesClient], Coroutine[Any, Any, object]]"
HERE = "trap 'exit 0' TERM; echo here; while :; do sleep 0.05; done"


def job(name: str = "j", script: str = "true", **meta: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "reg/t:1", "command": ["sh", "-c", script]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimit": 0, "template": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **meta}, "spec": spec}


def secret(name: str = "s", **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **meta}, "stringData": {"k": "v"}}


def held(name: str = "j", **meta: Any) -> dict[str, Any]:
    made = job(name, **meta)
    made["spec"]["suspend"] = True
    return made


async def soon(ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What it says when that is true."""
    async with asyncio.timeout(60):
        while not (said := await ask()):
            await asyncio.sleep(0.05)
    return said


async def running(client: KubernetesClient, name: str = "j") -> str:
    """The pod of a Job, once it prints."""

    async def prints() -> str:
        for pod in await client.list("pods", f"job-name={name}"):
            if pod["status"].get("containerStatuses", [{"state": {}}])[0]["state"].keys() & {"running", "terminated"}:
                return str(pod["metadata"]["name"])
        return ""

    return str(await soon(prints))


@asynccontextmanager
async def another(access: Access, *, timeout_s: float = 30, **own: Any) -> AsyncIterator[KubernetesClient]:
    """A client that differs in its access."""
    made = KubernetesClient(replace(access, **own), timeout_s=timeout_s)
    try:
        yield made
    finally:
        await made.close()


async def joined(blocks: AsyncGenerator[bytes, None]) -> bytes:
    async with aclosing(blocks):
        return b"".join([block async for block in blocks])


# Verbs


async def test_an_object_from_its_beginning_to_its_end(client: KubernetesClient) -> None:
    made = await client.create("jobs", held(labels={"of": "me"}))
    uid = made["metadata"]["uid"]
    with pytest.raises(Exists, match=r'API server https://.*: jobs.batch "j" already exists$'):
        await client.create("jobs", held())
    read = await client.read("jobs", "j")
    assert read is not None
    assert (read["metadata"]["uid"], read["spec"]["suspend"]) == (uid, True)
    assert [one["metadata"]["name"] for one in await client.list("jobs", "of=me")] == ["j"]
    assert await client.list("jobs", "of=you") == []
    patched = await client.patch("jobs", "j", {"metadata": {"annotations": {"a": "1"}, "labels": {"of": None}}})
    assert patched is not None
    assert patched["metadata"]["annotations"]["a"] == "1"
    assert await client.list("jobs", "of") == []
    with pytest.raises(Conflict, match=r"the object has been modified"):
        await client.patch("jobs", "j", {"metadata": {"resourceVersion": "1"}})
    assert not await client.delete("jobs", "j", uid="another's"), "the name is another object's now"
    assert await client.read("jobs", "j") is not None
    assert await client.delete("jobs", "j", uid=uid)
    assert not await client.delete("jobs", "j", uid=uid)
    assert await client.read("jobs", "j") is None
    assert await client.patch("jobs", "j", {"metadata": {}}) is None


async def test_the_end_of_a_job_ends_its_pods(client: KubernetesClient) -> None:
    await client.create("jobs", job(script=HERE))
    await running(client)
    assert await client.delete("jobs", "j")
    await soon(lambda: gone(client))


async def gone(client: KubernetesClient) -> bool:
    return not await client.list("pods")


async def test_a_deaf_pod_is_ended_within_the_grace_that_is_asked_for(client: KubernetesClient) -> None:
    await client.create("jobs", job(script=f"trap '' TERM; {HERE.replace('exit 0', 'true')}"))
    assert await client.delete("pods", await running(client), grace_s=0), "0 would leave what runs on a lost node"
    await client.delete("jobs", "j")
    await soon(lambda: gone(client))


async def test_kinds(client: KubernetesClient) -> None:
    assert [node["metadata"]["name"] for node in await client.list("nodes")] == [f"node-{n}" for n in range(1, 5)]
    await client.create("secrets", secret())
    assert await client.read("secrets", "s") is not None
    assert await client.list("events") == await client.list("services") == await client.list("configmaps") == []
    with pytest.raises(Rejected, match=r"serves no PodGroups$"):
        await client.list("podgroups")


async def test_a_dry_run_says_what_creating_would(client: KubernetesClient) -> None:
    await client.dry_run("jobs", held())
    assert await client.list("jobs") == []
    wrong = held()
    wrong["spec"]["completions"] = -1
    with pytest.raises(Impossible, match=r"spec.completions: Invalid value: -1: must be greater than or equal to 0$"):
        await client.dry_run("jobs", wrong)
    await client.create("jobs", held())
    with pytest.raises(Exists):
        await client.dry_run("jobs", held())


async def test_what_the_server_is(client: KubernetesClient, bed: KubeBed) -> None:
    assert await client.version() == (1, 36)
    assert await client.discover() >= {"v1", "batch/v1"}
    bed.api.denied |= {("get", "pods/log"), ("list", "nodes")}
    asked = [("create", "jobs"), ("get", "pods"), ("get", "pods/log"), ("list", "nodes")]
    assert [await client.may(verb, resource) for verb, resource in asked] == [True, True, False, False]


async def test_a_namespace_that_is_not_there(client: KubernetesClient) -> None:
    async with another(client.access, namespace="none") as other:
        with pytest.raises(NotFound, match=r'namespaces "none" not found$'):
            await other.create("jobs", held())
        with pytest.raises(NotFound, match=r'namespaces "none" not found$'):
            await other.dry_run("jobs", held())
        assert await other.read("jobs", "j") is None


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a?b", "J", "-a", "a\n", "%2e%2e"])
async def test_a_name_that_leads_elsewhere(client: KubernetesClient, bed: KubeBed, name: str) -> None:
    await client.create("jobs", held())
    asked = len(bed.troubles.asked)
    for verb in (client.read("jobs", name), client.delete("jobs", name), client.patch("jobs", name, {})):
        with pytest.raises(InputError, match=r"is not a name that Kubernetes allows$"):
            await verb
    with pytest.raises(InputError):
        await KubernetesClient(replace(client.access, namespace=name)).list("jobs")
    assert len(bed.troubles.asked) == asked


# Logs


async def test_a_log(client: KubernetesClient) -> None:
    await client.create("jobs", job(script="echo one; echo two; printf three"))
    name = await running(client)
    await soon(lambda: is_over(client))
    assert await joined(client.log(name, container="main", timestamps=False)) == b"one\ntwo\nthree\n"
    assert await joined(client.log(name, container="main", timestamps=False, follow=True)) == b"one\ntwo\nthree\n"
    assert await joined(client.log(name, container="main", timestamps=False, tail=2)) == b"two\nthree\n"
    first, *others = (await joined(client.log(name, container="main"))).split(b"\n")
    stamp, _, text = first.partition(b" ")
    assert (text, len(others)) == (b"one", 3)
    assert stamp.endswith(b"Z")
    since = await joined(client.log(name, container="main", timestamps=False, since=stamp.decode()))
    assert since == b"one\ntwo\nthree\n"
    with pytest.raises(NotFound, match=r'pods "other" not found$'):
        await joined(client.log("other", container="main"))


async def is_over(client: KubernetesClient) -> bool:
    pods = await client.list("pods")
    return all(pod["status"].get("phase") == "Succeeded" for pod in pods)


async def test_a_log_is_followed_while_it_is_written(client: KubernetesClient, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo one; while [ ! -e {go} ]; do sleep 0.05; done; printf two; sleep 0.2; echo ' three'"
    await client.create("jobs", job(script=script))
    blocks = client.log(await running(client), container="main", follow=True, timestamps=False)
    assert await anext(blocks) == b"one\n"
    go.touch()
    assert await joined(blocks) == b"two three\n", "no half of a line"


async def test_who_stops_following_leaves_nothing(client: KubernetesClient) -> None:
    await client.create("jobs", job(script=HERE))
    name = await running(client)
    async with aclosing(client.log(name, container="main", follow=True, timestamps=False)) as blocks:
        assert await anext(blocks) == b"here\n"
    assert await client.list("jobs"), "other requests go on"


async def test_followed_logs_hold_nobody_up(client: KubernetesClient) -> None:
    await client.create("jobs", job(script=HERE))
    name = await running(client)
    logs = [client.log(name, container="main", follow=True, timestamps=False) for _ in range(40)]
    assert set(await asyncio.gather(*map(anext, logs))) == {b"here\n"}
    async with asyncio.timeout(20):
        assert await client.list("jobs")
    for log in logs:
        await log.aclose()


async def test_a_log_of_what_has_not_started(client: KubernetesClient) -> None:
    made = job()
    made["spec"]["template"]["spec"]["containers"][0]["image"] = "missing/image"
    await client.create("jobs", made)
    name = (await soon(lambda: client.list("pods")))[0]["metadata"]["name"]

    async def asked() -> str:
        try:
            return str(await joined(client.log(name, container="main")))
        except Rejected as error:
            return str(error)

    assert "is waiting to start" in await soon(asked)


# Troubles


VERBS: dict[str, Any] = {
    "create": lambda client: client.create("jobs", held("new")),
    "read": lambda client: client.read("jobs", "j"),
    "list": lambda client: client.list("jobs"),
    "patch": lambda client: client.patch("jobs", "j", {"metadata": {"labels": {"a": "b"}}}),
    "delete": lambda client: client.delete("jobs", "j"),
    "version": lambda client: client.version(),
    "log": lambda client: joined(client.log("p", container="main")),
}


SILENCES = ("500", "500-after", "429", "reset", "hang")


@pytest.mark.parametrize(
    ("what", "verb"), [(what, verb) for what in SILENCES for verb in VERBS if (what, verb) != ("500-after", "log")]
)
async def test_silence_is_no_answer(client: KubernetesClient, bed: KubeBed, what: Any, verb: str) -> None:
    await client.create("jobs", held())
    async with another(client.access, timeout_s=0.3) as quick:
        bed.trouble(what, retry_after_s=3600, times=2)  # a connection that was kept may be tried once more
        started = time.monotonic()
        with pytest.raises(BackendUnreachable) as raised:
            await VERBS[verb](quick)
        assert time.monotonic() - started < 10, "an hour is not waited for"
        assert str(raised.value).startswith(f"the API server {bed.url}")
        assert client.access.token not in "".join(traceback.format_exception(raised.value)), (
            "nor what a log makes of it"
        )
        bed.troubles.waiting.clear()
    if what == "500-after" and verb in ("create", "delete"):
        there = {one["metadata"]["name"] for one in await client.list("jobs")}
        assert there == ({"j", "new"} if verb == "create" else set()), "it was done all the same"


async def test_a_lost_answer_is_found_by_asking_again(client: KubernetesClient, bed: KubeBed) -> None:
    bed.trouble("500-after", "POST")
    with pytest.raises(BackendUnreachable, match=r"etcdserver: request timed out$"):
        await client.create("jobs", held(annotations={"tokens": "t"}))
    with pytest.raises(Exists):
        await client.create("jobs", held(annotations={"tokens": "t"}))
    found = await client.read("jobs", "j")
    assert found is not None
    assert found["metadata"]["annotations"]["tokens"] == "t"


async def test_a_busy_server_is_asked_again_when_it_says(
    client: KubernetesClient, bed: KubeBed, clock: FakeClock
) -> None:
    bed.trouble("429", times=3, retry_after_s=5)
    began = clock.now()
    await client.create("jobs", held())
    assert clock.now() - began == 15
    bed.trouble("429", times=5, retry_after_s=5)
    with pytest.raises(BackendUnreachable, match=r"too many requests"):
        await client.list("jobs")
    assert clock.now() - began == 35, "no longer than 20 s"


async def test_a_refusal_is_the_servers_own_sentence(client: KubernetesClient, bed: KubeBed) -> None:
    bed.trouble("403", "POST")
    says = (
        f'the API server {bed.url}: jobs.batch is forbidden: User "remuda" cannot create resource "jobs" in API group'
    )
    with pytest.raises(Rejected) as raised:
        await client.create("jobs", held())
    assert str(raised.value) == f'{says} "batch" in the namespace "default"'
    assert not isinstance(raised.value, Impossible)
    wrong = held()
    wrong["kind"] = "Pod"
    with pytest.raises(Rejected, match=r"does not match the expected API version"):
        await client.create("jobs", wrong)
    with pytest.raises(Impossible, match=r'Job.batch "j" is invalid'):
        await client.create("jobs", held() | {"spec": {}})


# Who asks


async def test_who_is_not_known_is_told_which_context(client: KubernetesClient, bed: KubeBed) -> None:
    async with another(client.access, token="SECRET") as other:
        asked = len(bed.troubles.asked)
        for verb in ("create", "list", "log"):
            with pytest.raises(InputError) as raised:
                await VERBS[verb](other)
            says = f"credentials of context stand-in of {bed.root}/kubeconfig.token"
            assert str(raised.value) == f"the API server {bed.url} rejects the {says}"
        assert len(bed.troubles.asked) == asked + 3, "the same token is not shown twice"


def renewing(bed: KubeBed, client: KubernetesClient) -> Access:
    """A real plugin gives its credentials: the first time an old token, then the right one."""
    program = bed.root / "login"
    program.write_text(
        f"#!{sys.executable}\nimport json, os\nold = not os.path.exists('{bed.root}/asked')\n"
        f"open('{bed.root}/asked', 'a').write('.')\n"
        f"print(json.dumps({{'status': {{'token': 'old' if old else '{client.access.token}'}}}}))\n"
    )
    program.chmod(stat.S_IRWXU)
    plugin = Plugin((str(program),), EXEC_VERSIONS[0], {}, {})
    return replace(client.access, token="", plugin=plugin)


async def test_a_plugin_is_asked_again_where_its_token_is_refused(client: KubernetesClient, bed: KubeBed) -> None:
    async with another(renewing(bed, client)) as own:
        names = [f"j{number}" for number in range(20)]
        made = await asyncio.gather(*(own.create("jobs", held(name)) for name in names))
        assert sorted(one["metadata"]["name"] for one in made) == sorted(names)
        assert (bed.root / "asked").read_text() == "..", "once for all"
        bed.trouble("401")
        with pytest.raises(InputError):
            await own.list("jobs")
        assert (bed.root / "asked").read_text() == "...", "and it had no other"


async def test_credentials_that_are_refused_in_the_middle(bed: KubeBed, tmp_path: Path) -> None:
    """The plugin gives a token, and then a certificate."""
    crowd(bed, 1001)
    token, certificate = (
        load(kubeconfig=str(bed.kubeconfig(by)), environ={}, home=tmp_path) for by in ("token", "certificate")
    )
    later = {"clientCertificateData": certificate.certificate.decode(), "clientKeyData": certificate.key.decode()}
    for name, status in (("first", {"token": token.token}), ("second", later)):
        (tmp_path / name).write_text(json.dumps({"status": status}))
    plugin = Plugin(
        ("sh", "-c", f"cd {tmp_path}; cat first; mv second first || true"), EXEC_VERSIONS[0], os.environ, {}
    )
    async with another(token, token="", plugin=plugin) as own:
        bed.trouble("401", "GET", "continue=")
        names = [pod["metadata"]["name"] for pod in await own.list("pods")]
        assert len(names) == len(set(names)) == 1001
        assert not (tmp_path / "second").exists()
        bed.trouble("401", "GET", "continue=")
        with pytest.raises(InputError):
            await own.list("pods")


async def test_a_certificate_is_enough(bed: KubeBed, tmp_path: Path) -> None:
    access = load(kubeconfig=str(bed.kubeconfig("certificate")), environ={}, home=tmp_path)
    async with another(access) as client:
        await client.create("jobs", held())
    plugin = tmp_path / "login"
    status = {"clientCertificateData": access.certificate.decode(), "clientKeyData": access.key.decode()}
    plugin.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps({'status': status})}\nEND\n")
    plugin.chmod(stat.S_IRWXU)
    own = Plugin((str(plugin),), EXEC_VERSIONS[0], {"PATH": "/usr/bin:/bin"}, {})
    async with another(access, certificate=b"", key=b"", plugin=own) as client:
        assert len(await client.list("jobs")) == 1


async def test_a_key_that_asks_for_a_password_is_told_at_once(bed: KubeBed, tmp_path: Path) -> None:
    access = load(kubeconfig=str(bed.kubeconfig("certificate")), environ={}, home=tmp_path)
    argv = ["openssl", "ec", "-aes256", "-passout", "pass:secret"]
    key = subprocess.run(argv, input=access.key, capture_output=True, check=True).stdout
    with pytest.raises(InputError, match=r"^a certificate or key of context stand-in of .* cannot be read: "):
        await KubernetesClient(replace(access, key=key)).list("jobs")


async def test_a_proxy_stands_between(client: KubernetesClient, bed: KubeBed) -> None:
    """TLS goes through it: it sees where to, and nothing else."""
    heads: list[bytes] = []

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                writer.write(piece)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        there, back = await asyncio.open_connection("127.0.0.1", int(bed.url.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copied(reader, back), copied(there, writer))

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with proxy, another(client.access, proxy=f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}") as own:
        await own.create("jobs", held())
        assert len(await own.list("jobs")) == 1
    assert heads[0].startswith(f"CONNECT {bed.url.removeprefix('https://')} HTTP/1.1".encode())
    assert client.access.token.encode() not in b"".join(heads)


async def test_an_authority_with_remarks(client: KubernetesClient) -> None:
    assert client.access.ca is not None
    async with another(client.access, ca="# für uns\n".encode() + client.access.ca) as other:
        assert await other.list("jobs") == []


async def test_a_server_that_nobody_vouches_for(client: KubernetesClient) -> None:
    async with another(client.access, ca=None) as other:
        with pytest.raises(BackendUnreachable, match=r"cannot be reached: .*certificate verify failed"):
            await other.list("jobs")
    async with another(client.access, server_name="elsewhere") as named:
        with pytest.raises(BackendUnreachable, match=r"certificate is not valid for 'elsewhere'"):
            await named.list("jobs")
    async with another(client.access, ca=None, skip_verify=True) as careless:
        assert await careless.list("jobs") == []
    with pytest.raises(InputError, match=r"^a certificate or key of context stand-in of .* cannot be read: "):
        await KubernetesClient(replace(client.access, ca=b"none")).list("jobs")
    with pytest.raises(InputError, match=r"^a certificate or key of context stand-in of .* cannot be read: "):
        await KubernetesClient(replace(client.access, certificate=b"none", key=b"none")).list("jobs")


# Lists


WORDS = [f"word-{letter}" for letter in "abcdefghijklmnopqrstuvwx"]


def crowd(bed: KubeBed, count: int, **labels: str) -> None:
    """Pods that have ended, each of the size that a real one has."""
    fields: Any = {f"f:{word}": {".": {}, f"f:{word}s": {f'k:{{"name":"{word}"}}': {}}} for word in WORDS}
    managed = [
        {"manager": "m", "operation": "Update", "fieldsV1": {f"f:{part}": fields for part in ("spec", "status")}}
    ]
    main = {"name": "main", "image": "reg/t:1", "env": [{"name": word.upper(), "value": word * 2} for word in WORDS]}
    conditions = [{"type": word, "status": "True", "lastTransitionTime": "2026-11-26T10:00:00Z"} for word in WORDS[:5]]
    for number in range(count):
        name = f"p-{number}"
        meta = {"name": name, "namespace": "default", "labels": labels, "managedFields": managed}
        spec = {"nodeName": "node-1", "containers": [main], "tolerations": [{"key": word} for word in WORDS]}
        status = {"phase": "Succeeded", "conditions": conditions}
        doc = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
        bed.objects.create(("pods", "default", name), doc)


@pytest.mark.parametrize(("count", "calls"), [(0, 1), (1, 1), (500, 1), (501, 2), (1001, 3)])
async def test_a_list_comes_in_pages(client: KubernetesClient, bed: KubeBed, count: int, calls: int) -> None:
    crowd(bed, count, of="me")
    before = len(bed.troubles.asked)
    names = {pod["metadata"]["name"] for pod in await client.list("pods", "of in (me, you),!other")}
    assert len(names) == count
    assert len(bed.troubles.asked) - before == calls


async def test_a_list_that_the_server_forgot_is_read_again(client: KubernetesClient, bed: KubeBed) -> None:
    crowd(bed, 600)
    answer = bed.api.answer
    forgets = [2]

    def forgetful(asked: Any) -> Any:
        if asked.query.get("continue") and forgets[0]:
            forgets[0] -= 1
            bed.api.expire_pages()
        return answer(asked)

    bed.api.answer = forgetful  # type: ignore[method-assign]
    names = [pod["metadata"]["name"] for pod in await client.list("pods")]
    assert len(names) == len(set(names)) == 600
    forgets[0] = 3
    with pytest.raises(BackendUnreachable, match=r"expires lists of pods before they are read$"):
        await client.list("pods")


async def test_thousands_of_pods_are_cheap(client: KubernetesClient, bed: KubeBed) -> None:
    """The CPU of the client alone: the server has threads of its own."""
    crowd(bed, 2048)
    took = []
    for _ in range(3):
        began = time.thread_time()
        assert len(await client.list("pods")) == 2048
        took.append(time.thread_time() - began)
    text = orjson.dumps(bed.objects.get(("pods", "default", "p-0")))
    began = time.thread_time()
    kept = [orjson.loads(text) for _ in range(2048)]
    parsing = time.thread_time() - began
    print(f"a list of {len(kept):,} pods of {len(text):,} bytes: {min(took) * 1000:.0f} ms CPU")
    assert min(took) < max(0.3, 2 * parsing), "on a slow machine, too, most of it is reading JSON"
