"""Kubeconfigs mean to us what they mean to the real kubectl."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from remuda.backends.kubernetes.config import load
from remuda.base.errors import InputError

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
