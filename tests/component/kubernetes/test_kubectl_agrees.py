"""Kubeconfigs mean to us what they mean to the real kubectl."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from remuda.backends.kubernetes.client import KubernetesClient
from remuda.backends.kubernetes.config import EXEC_VERSIONS, load
from remuda.base.errors import InputError

if TYPE_CHECKING:
    from remuda.testing.kube import KubeBed

KUBECTL = str(Path(sys.executable).with_name("kubectl"))
FILES = ("one/config", "two/config", "three")

servers = st.sampled_from(["https://a", "https://b:6443/k8s/x", "https://[::1]:1"])
clusters = st.fixed_dictionaries(
    {"server": servers},
    optional={
        "certificate-authority": st.sampled_from(["ca.crt", "pki/../ca.crt", "./ca.crt"]),
        "tls-server-name": st.sampled_from(["kube", "1"]),
        "proxy-url": st.sampled_from(["http://p:1", ""]),
    },
)
users: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"token": st.sampled_from(["t", "12", "1e3", "0x10", "yes", "null"])}),
    st.fixed_dictionaries({"client-certificate": st.just("ca.crt"), "client-key": st.just("ca.crt")}),
    st.just({}),
)
contexts = st.fixed_dictionaries(
    {"cluster": st.sampled_from(["c", "d"]), "user": st.sampled_from(["u", "v", ""])},
    optional={"namespace": st.sampled_from(["ml", "default"])},
)


def named(kind: str, names: list[str], bodies: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[Any]]:
    one = st.builds(lambda name, body: {"name": name, kind: body}, st.sampled_from(names), bodies)
    return st.lists(one, min_size=1, max_size=2, unique_by=lambda entry: entry["name"])


files = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Config"),
        "clusters": named("cluster", ["c", "d"], clusters),
        "users": named("user", ["u", "v"], users),
        "contexts": named("context", ["x", "y"], contexts),
    },
    optional={"current-context": st.sampled_from(["x", "y", ""])},
)


def kubectl(environ: dict[str, str], *words: str) -> dict[str, Any] | None:
    argv = [KUBECTL, "config", "view", "--minify", "--flatten", "-o", "json", *words]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return None if done.returncode else json.loads(done.stdout)


def entry(said: dict[str, Any], kind: str) -> dict[str, Any]:
    listed = said.get(f"{kind}s") or [{}]
    return listed[0].get(kind) or {}


@settings(max_examples=60)
@given(st.lists(files, min_size=1, max_size=3), st.sampled_from(["", "x", "y"]))
def test_merged_files(tmp_path_factory: pytest.TempPathFactory, said: list[dict[str, Any]], context: str) -> None:
    folder = tmp_path_factory.mktemp("merged")
    paths = [folder / name for name in FILES[: len(said)]]
    for number, (path, file) in enumerate(zip(paths, said, strict=True)):
        (path.parent / "pki").mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(file))
        (path.parent / "ca.crt").write_text(f"CA {number}")
    environ = {"KUBECONFIG": ":".join(map(str, paths)), "HOME": str(folder)}
    theirs = kubectl(environ, *(("--context", context) if context else ()))
    if theirs is None or not is_whole(theirs):
        with pytest.raises(InputError):
            load(context=context, environ=environ, home=folder, pod=folder / "none")
        return
    ours = load(context=context, environ=environ, home=folder, pod=folder / "none")
    event("a cluster")
    cluster, user = entry(theirs, "cluster"), entry(theirs, "user")
    assert ours.server == cluster["server"]
    assert ours.namespace == entry(theirs, "context").get("namespace", "default")
    assert (ours.server_name, ours.proxy) == (cluster.get("tls-server-name", ""), cluster.get("proxy-url", ""))
    assert (ours.ca or b"") == base64.b64decode(cluster.get("certificate-authority-data", ""))
    assert ours.token == user.get("token", "")
    assert ours.certificate == base64.b64decode(user.get("client-certificate-data", ""))
    assert ours.key == base64.b64decode(user.get("client-key-data", ""))


def is_whole(said: dict[str, Any]) -> bool:
    """Whether it leads to a server; kubectl shows a context of which the cluster or the user is not defined."""
    wants = entry(said, "context")
    has_user = not wants.get("user") or any(one["name"] == wants["user"] for one in said.get("users") or [])
    return bool(entry(said, "cluster").get("server")) and has_user


@pytest.mark.parametrize("version", EXEC_VERSIONS)
@pytest.mark.parametrize("tells", [True, False])
async def test_a_plugin_is_asked_the_same(bed: KubeBed, tmp_path: Path, version: str, tells: bool) -> None:
    said = json.loads(bed.kubeconfig().read_text())
    token = said["users"][0]["user"].pop("token")
    status = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}})
    login = tmp_path / "bin/login"
    login.parent.mkdir()
    login.write_text(f'#!/bin/sh\nprintf \'%s\' "$@" "$KUBERNETES_EXEC_INFO" > "$OUT"\necho \'{status}\'\n')
    login.chmod(0o700)
    asked: dict[str, Any] = {
        "apiVersion": version,
        "command": "bin/login",
        "args": ["a b", "$HOME"],
        "interactiveMode": "Never",
    }
    asked |= {"env": [{"name": "OUT", "value": str(tmp_path / "told")}], "provideClusterInfo": tells}
    said["users"][0]["user"]["exec"] = asked
    path = tmp_path / "config"
    path.write_text(json.dumps(said))
    argv = [KUBECTL, "--kubeconfig", str(path), "--cache-dir", str(tmp_path / "cache"), "get", "nodes"]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(argv, env=environ, check=True, capture_output=True, timeout=60, cwd="/")
    theirs = (tmp_path / "told").read_text()
    (tmp_path / "told").unlink()
    client = KubernetesClient(load(kubeconfig=str(path), environ=environ, home=tmp_path))
    assert len(await client.list("nodes")) == 4
    await client.close()
    ours = (tmp_path / "told").read_text()
    assert ours.startswith("a b$HOME{")
    assert theirs.startswith("a b$HOME{")
    wanted = json.loads(theirs.removeprefix("a b$HOME"))
    if tells:
        assert wanted["spec"]["cluster"].pop("config") is None, "which is not passed on"
    assert json.loads(ours.removeprefix("a b$HOME")) == wanted


def test_what_kubectl_sends_otherwise_than_as_json_is_refused_with_what_to_type(bed: KubeBed) -> None:
    create = [KUBECTL, "--cache-dir", str(bed.root / "cache"), "create"]
    words = [*create, "secret", "generic", "hub", "--from-literal=a=b"]
    done = subprocess.run(words, env=bed.env(), capture_output=True, text=True, check=False)
    says = "this stand-in takes JSON alone: add --dry-run=client -o json, and | kubectl create -f -"
    assert (done.returncode, done.stderr) == (1, f"error: failed to create secret {says}\n")
    made = subprocess.run([*words, "--dry-run=client", "-o", "json"], env=bed.env(), capture_output=True, check=True)
    subprocess.run([*create, "-f", "-"], env=bed.env(), input=made.stdout, check=True)
    secret = bed.objects.get(("secrets", "default", "hub"))
    assert secret is not None
    assert secret["data"] == {"a": "Yg=="}
