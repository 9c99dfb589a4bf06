"""Kubeconfigs as people have them, and what is wrong with some."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.kubernetes.config import EXEC_VERSIONS, Access, load
from remuda.base.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

USER = {"token": "t0ken-of-alice"}
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}


def config(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    current: str | None = "here",
) -> dict[str, Any]:
    """One context, `here`, of one cluster `c` and one user `alice`."""
    said: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"} if cluster is None else cluster}],
        "users": [{"name": "alice", "user": USER if user is None else user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "alice"} if context is None else context}],
    }
    return said if current is None else said | {"current-context": current}


def write(path: Path, said: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(said if isinstance(said, str) else yaml.safe_dump(said))
    return path


def read(path: Path, said: object, **wanted: Any) -> Access:
    return load(kubeconfig=str(write(path / "config", said)), environ={}, home=path, **wanted)


def coded(text: bytes) -> str:
    return base64.b64encode(text).decode()


# Which cluster


def test_a_context_of_a_file(tmp_path: Path) -> None:
    found = read(tmp_path, config())
    assert found == Access(
        "https://10.0.0.1:6443",
        "default",
        f"context here of {tmp_path}/config",
        token="t0ken-of-alice",
        name="here",
    )


@pytest.mark.parametrize(
    ("own", "asked", "namespace"), [("", "", "default"), ("ml", "", "ml"), ("ml", "mine", "mine"), ("", "mine", "mine")]
)
def test_the_namespace_is_the_contexts_where_none_is_asked_for(
    tmp_path: Path, own: str, asked: str, namespace: str
) -> None:
    said = config(context={"cluster": "c", "user": "alice"} | ({"namespace": own} if own else {}))
    assert read(tmp_path, said, namespace=asked).namespace == namespace


def test_files_of_the_environment_are_one(tmp_path: Path) -> None:
    """The first wins that says something; a missing one is fine, and an empty one too."""
    first = write(tmp_path / "one/config", config(user={"tokenFile": "token"}, context={}, current=None))
    second = config({"server": "https://never"}, context={"cluster": "c", "user": "alice"}, current="there")
    second["contexts"] += [{"name": "there", "context": {"cluster": "d", "user": "alice", "namespace": "ml"}}]
    second["clusters"] += [{"name": "d", "cluster": {"server": "https://d/k8s/", "certificate-authority": "ca.crt"}}]
    write(tmp_path / "two/ca.crt", "CA of two")
    names = [str(tmp_path / "none"), str(first), str(write(tmp_path / "empty", "")), "", "~/two/config"]
    write(tmp_path / "two/config", second)
    environ = {"KUBECONFIG": ":".join(names)}
    found = load(environ=environ, home=tmp_path)
    assert (found.server, found.namespace, found.ca) == ("https://d/k8s", "ml", b"CA of two")
    assert (found.token_file, found.token) == (str(tmp_path / "one/token"), "")
    assert found.context == f"context there of {tmp_path}/two/config"
    with pytest.raises(InputError, match=rf"{first}: context here: it names no cluster$"):
        load(context="here", environ=environ, home=tmp_path)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"names": st.sets(st.sampled_from("abcd")), "current": st.sampled_from(["", "a", "b", "c"])}
        ),
        min_size=1,
        max_size=4,
    )
)
def test_the_first_file_wins(tmp_path_factory: pytest.TempPathFactory, files: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("merged")
    for number, file in enumerate(files):
        said: dict[str, Any] = {"clusters": [{"name": f"c{number}", "cluster": {"server": f"https://h{number}"}}]}
        said["contexts"] = [{"name": name, "context": {"cluster": f"c{number}"}} for name in sorted(file["names"])]
        write(folder / str(number), said | {"current-context": file["current"]})
    environ = {"KUBECONFIG": ":".join(str(folder / str(number)) for number in range(len(files)))}
    current = next((file["current"] for file in files if file["current"]), "")
    owner = next((number for number, file in enumerate(files) if current in file["names"]), None)
    if owner is None:
        with pytest.raises(
            InputError, match=r"there is no context|current-context is missing|no cluster is configured"
        ):
            load(environ=environ, home=folder)
    else:
        assert load(environ=environ, home=folder).server == f"https://h{owner}"


def test_the_usual_file_comes_before_the_pod_that_this_is(tmp_path: Path) -> None:
    pod, environ = tmp_path / "pod", {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    for name, text in (("token", "t"), ("namespace", "own\n"), ("ca.crt", "CA")):
        write(pod / name, text)
    write(tmp_path / ".kube/config", config())
    assert load(environ=environ, home=tmp_path, pod=pod).server == "https://10.0.0.1:6443"
    write(tmp_path / ".kube/config", "apiVersion: v1\nclusters: null\ncontexts: []\n")
    found = load(environ=environ, home=tmp_path, pod=pod)
    said = "the service account of this pod"
    assert found == Access("https://[fd00::1]:6443", "own", said, ca=b"CA", token_file=str(pod / "token"))
    assert load(namespace="ml", environ=environ, home=tmp_path, pod=pod).namespace == "ml"
    with pytest.raises(InputError, match=r"there is no context x$"):
        load(context="x", environ=environ, home=tmp_path, pod=pod)
    (pod / "ca.crt").unlink()
    with pytest.raises(InputError, match=rf"{pod}/ca.crt: the service account cannot be read: No such file"):
        load(environ=environ, home=tmp_path, pod=pod)


def test_no_cluster_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        load(environ={}, home=tmp_path, pod=tmp_path / "none")
    lack = f"{tmp_path}/.kube/config has no contexts, and this process is not in a pod"
    assert str(raised.value) == f"no cluster is configured: KUBECONFIG is not set, {lack}"


# What is shown


def test_certificates_lie_beside_the_file_or_in_it(tmp_path: Path) -> None:
    write(tmp_path / "pki/me.crt", "CERT")
    write(tmp_path / "me.key", "KEY")
    user = {"client-certificate": "pki/me.crt", "client-key": str(tmp_path / "me.key")}
    cluster = {"server": "10.0.0.1:6443", "certificate-authority-data": coded(b"CA"), "tls-server-name": "kube"}
    found = read(tmp_path, config(cluster | {"certificate-authority": "not-looked-at"}, user))
    assert (found.certificate, found.key, found.ca, found.server_name) == (b"CERT", b"KEY", b"CA", "kube")
    assert found.server == "https://10.0.0.1:6443"
    folded = coded(b"x" * 90)[:60] + "\n  " + coded(b"x" * 90)[60:]
    found = read(tmp_path, config(user={"client-certificate-data": folded, "client-key-data": coded(b"KEY")}))
    assert (found.certificate, found.key) == (b"x" * 90, b"KEY")


def test_a_plugin(tmp_path: Path) -> None:
    cluster = {"server": "https://c", "certificate-authority-data": coded(b"CA")}
    said = EXEC | {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "bin/login",
        "args": ["--region", 1],
        "env": [{"name": "AWS_PROFILE", "value": "ml"}, {"name": "EMPTY"}],
        "provideClusterInfo": True,
        "installHint": "get it",
        "interactiveMode": "IfAvailable",
    }
    path = write(tmp_path / "config", config(cluster, {"exec": said}))
    found = load(kubeconfig=str(path), environ={"PATH": "/bin", "AWS_PROFILE": "other"}, home=tmp_path).plugin
    assert found is not None
    assert (found.argv, found.hint) == ((str(tmp_path / "bin/login"), "--region", "1"), "get it")
    assert found.env == {"PATH": "/bin", "AWS_PROFILE": "ml", "EMPTY": ""}
    told = {"server": "https://c", "certificate-authority-data": coded(b"CA")}
    assert found.cluster == told
    found = read(tmp_path, config(user={"exec": EXEC | {"args": None, "env": None}})).plugin
    assert found is not None
    assert (found.argv, found.cluster) == (("aws",), {})
    assert read(tmp_path, config(user={"exec": EXEC, "token": "t"})).plugin is None, "a token wins"


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        ("https://c", {}, ""),
        ("https://c", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://c", {"https_proxy": "http://q:1", "HTTPS_PROXY": "http://p:1"}, "http://q:1"),
        ("http://c", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://c.corp", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "localhost,.corp"}, ""),
        ("https://c", {"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, ""),
        ("https://127.0.0.1:1", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://[::1]:1", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://localhost", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://10.1.2.3", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x, 10.0.0.0/8"}, ""),
        ("https://11.1.2.3", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8,nonsense/99"}, "http://p:1"),
        ("https://[fd00::1]", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8,fd00::/8"}, ""),
        ("https://c", {"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
    ],
)
def test_proxies_of_the_environment(tmp_path: Path, server: str, environ: dict[str, str], proxy: str) -> None:
    path = write(tmp_path / "config", config({"server": server}))
    assert load(kubeconfig=str(path), environ=environ, home=tmp_path).proxy == proxy
    own = write(tmp_path / "own", config({"server": server, "proxy-url": "http://own"}))
    assert load(kubeconfig=str(own), environ=environ, home=tmp_path).proxy == "http://own"


def test_no_secret_is_shown(tmp_path: Path) -> None:
    key = {"client-certificate-data": coded(b"CERT"), "client-key-data": coded(b"HIDDEN")}
    said = EXEC | {"env": [{"name": "PASS", "value": "HIDDEN"}]}
    for user in ({"token": "HIDDEN"}, key, {"exec": said}):
        found = read(tmp_path, config({"server": "https://c", "proxy-url": "http://me:HIDDEN@p"}, user))
        assert "HIDDEN" not in repr(found)
        assert hash(found) == hash(found), "clients can be kept by it"


# What is wrong


SERVER = {"server": "https://c"}
WRONG: dict[str, tuple[object, str]] = {
    "no context": (config(current="gone"), "{file}: there is no context gone"),
    "no current context": (config(current=None), "{file}: current-context is missing"),
    "no cluster": (config(context={"cluster": "x"}), "{file}: context here: its cluster x is not defined"),
    "no user": (config(context={"cluster": "c", "user": "x"}), "{file}: context here: its user x is not defined"),
    "cluster not named": (config(context={"user": "alice"}), "{file}: context here: it names no cluster"),
    "no server": (config({}), "{file}: cluster c: server must be https://HOST:PORT"),
    "other scheme": (config({"server": "unix:///x"}), "{file}: cluster c: server must be https://HOST:PORT"),
    "bad port": (config({"server": "https://c:port"}), "{file}: cluster c: server must be https://HOST:PORT"),
    "password": (config({"server": "https://me:pw@c"}), "{file}: cluster c: server must be https://HOST:PORT"),
    "ca is none": (
        config(SERVER | {"certificate-authority-data": "%%"}),
        "{file}: cluster c: certificate-authority-data is not base64",
    ),
    "ca is missing": (
        config(SERVER | {"certificate-authority": "x.crt"}),
        "{file}: cluster c: certificate-authority: {folder}/x.crt cannot be read: No such file or directory",
    ),
    "ca and skip": (
        config(SERVER | {"certificate-authority-data": coded(b"CA"), "insecure-skip-tls-verify": True}),
        "{file}: cluster c: certificate-authority and insecure-skip-tls-verify exclude each other",
    ),
    "socks": (
        config(SERVER | {"proxy-url": "socks5://p"}),
        "{file}: cluster c: a proxy must be http://HOST:PORT, other kinds are not supported",
    ),
    "a proxy without a port": (
        config(SERVER | {"proxy-url": "http://p:x"}),
        "{file}: cluster c: a proxy must be http://HOST:PORT, other kinds are not supported",
    ),
    "no key": (
        config(user={"client-certificate-data": coded(b"CERT")}),
        "{file}: user alice: a client certificate needs its key, and a key its certificate",
    ),
    "provider": (
        config(user={"auth-provider": {"name": "gcp"}}),
        "{file}: user alice: auth-provider cannot be used: Kubernetes has removed it, use an exec plugin",
    ),
    "password of a user": (
        config(user={"username": "me", "password": "pw"}),
        "{file}: user alice: username cannot be used: servers no longer take passwords, use a token or an exec plugin",
    ),
    "somebody else": (
        config(user={"as": "root", **USER}),
        "{file}: user alice: as cannot be used: impersonation is not supported",
    ),
    "version of a plugin": (
        config(user={"exec": EXEC | {"apiVersion": "v1alpha1"}}),
        f"{{file}}: user alice, exec: apiVersion v1alpha1 is none of {', '.join(EXEC_VERSIONS)}",
    ),
    "no command": (
        config(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}),
        "{file}: user alice, exec: command is missing",
    ),
    "asks a terminal": (
        config(user={"exec": EXEC | {"interactiveMode": "Always"}}),
        "{file}: user alice, exec: interactiveMode Always needs a terminal, which a host does not have",
    ),
    "variable": (
        config(user={"exec": EXEC | {"env": ["A=b"]}}),
        "{file}: user alice, exec: each entry of env needs a name",
    ),
    "no list": ({"contexts": {"a": 1}}, "{file}: the file: contexts must be a list"),
    "no name": ({"users": [{"user": {}}]}, "{file}: the file: each entry of users needs a name"),
    "no mapping": ({"users": [{"name": "x", "user": "y"}]}, "{file}: user x: user must be a mapping"),
    "no text": (config(user={"token": {"a": 1}}), "{file}: user alice: token must be text"),
    "no YAML": ("a: [", "{file}:2:1: is not valid YAML: did not find expected node content"),
    "twice": ("a: 1\na: 2", "{file}:2:1: the key 'a' is there twice"),
    "a list": ("- a", "{file}:1:1: must be a mapping of keys and values"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, case: str) -> None:
    said, sentence = WRONG[case]
    with pytest.raises(InputError) as raised:
        read(tmp_path, said)
    assert str(raised.value) == sentence.format(file=tmp_path / "config", folder=tmp_path)


def test_a_context_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, config(), context="prod")
    assert (raised.value.hint, str(raised.value)) == (
        "contexts there: here",
        f"{tmp_path}/config: there is no context prod",
    )


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^there is no {tmp_path}/x$"):
        load(kubeconfig=str(tmp_path / "x"), environ={}, home=tmp_path)
    with pytest.raises(InputError, match=rf"^KUBECONFIG: there is no {tmp_path}/x and no {tmp_path}/y$"):
        load(environ={"KUBECONFIG": f"{tmp_path}/x:{tmp_path}/y"}, home=tmp_path)
    with pytest.raises(InputError, match=rf"^{tmp_path}: cannot be read: Is a directory$"):
        load(kubeconfig=str(tmp_path), environ={}, home=tmp_path)


def test_json_and_marks_of_windows(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(config(), indent="\t"))
    assert load(kubeconfig=str(path), environ={}, home=tmp_path).token == "t0ken-of-alice"
    path.write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(config()).replace("\n", "\r\n").encode())
    assert load(kubeconfig=str(path), environ={}, home=tmp_path).token == "t0ken-of-alice"
