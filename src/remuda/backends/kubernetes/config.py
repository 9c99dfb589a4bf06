"""From kubeconfigs, or from the pod that this is, to a server and who asks: as kubectl reads them."""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from remuda.base.errors import InputError, NoSuchCluster
from remuda.specs.reading.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_T = TypeVar("_T", str, dict[str, Any], list[Any])
_CALLED: Final[dict[type, str]] = {str: "text", dict: "a mapping", list: "a list"}
_HERE: Final = ("localhost", "127.0.0.0/8", "::1")
_REFUSED: Final = {
    "auth-provider": "Kubernetes has removed it, use an exec plugin",
    "username": "servers no longer take passwords, use a token or an exec plugin",
    "as": "impersonation is not supported",
}


@dataclass(frozen=True)
class Plugin:
    """A program that prints credentials."""

    argv: tuple[str, ...]
    version: str
    """Of `EXEC_VERSIONS`."""
    env: Mapping[str, str] = field(repr=False, hash=False)
    cluster: Mapping[str, Any] = field(repr=False, hash=False)
    """What it is told of the cluster; empty: nothing."""
    hint: str = ""
    """How to install it."""


@dataclass(frozen=True)
class Access:
    """One server, a namespace there, and who asks. Its repr shows no secret."""

    server: str
    """`https://HOST:PORT`, with a path where there is one, without a slash at its end."""
    namespace: str
    context: str = ""
    """For sentences: `context NAME of FILE`, or `the service account of this pod`."""
    ca: bytes | None = field(default=None, repr=False)
    """Certificates of who signed the server's, PEM; None: those that this machine trusts."""
    server_name: str = ""
    """What the server's certificate says, where that is not its host."""
    skip_verify: bool = False
    proxy: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    """Read again and again: others renew it. It wins over `token`."""
    plugin: Plugin | None = None
    name: str = ""
    """Of the context, to find the same cluster when another one is current; empty in a pod."""


def load(
    *,
    kubeconfig: str = "",
    context: str = "",
    namespace: str = "",
    environ: Mapping[str, str],
    home: Path,
    pod: Path = SERVICE_ACCOUNT,
) -> Access:
    """Find the cluster: `kubeconfig`, else the files of `KUBECONFIG`, else `~/.kube/config`, else the pod that this is.

    Of several files the first wins that says something, a cluster, user or context as a whole. `environ` is the user's,
    and plugins get it; `pod` is where a pod has its service account.

    Raises:
        InputError: none is found, or what is found cannot be used; says file and key.
    """
    files = _found(kubeconfig, environ, home)
    found, current = _read(files)
    name = context or current
    if not (name or found["context"] or kubeconfig):
        return _of_pod(environ, pod, namespace, home)
    if name not in found["context"]:
        said = f"there is no context {name}" if name else "current-context is missing"
        where = ":".join(map(str, files)) or str(home / ".kube/config")
        raise NoSuchCluster(said, hint=f"contexts there: {', '.join(found['context']) or 'none'}", where=where)
    chosen = found["context"][name]
    cluster, user = (found[kind].get(chosen.text(kind)) for kind in ("cluster", "user"))
    for kind, entry in (("cluster", cluster), ("user", user)):
        if entry is None and (kind == "cluster" or chosen.text(kind)):
            raise chosen.wrong(
                f"its {kind} {chosen.text(kind)} is not defined" if chosen.text(kind) else f"it names no {kind}"
            )
    assert cluster is not None
    server, ca = _server(cluster), cluster.content("certificate-authority") or None
    if ca and cluster.has("insecure-skip-tls-verify"):
        raise cluster.wrong("certificate-authority and insecure-skip-tls-verify exclude each other")
    return Access(
        server,
        namespace or chosen.text("namespace") or "default",
        f"context {name} of {chosen.file}",
        ca=ca,
        server_name=cluster.text("tls-server-name"),
        skip_verify=cluster.has("insecure-skip-tls-verify"),
        proxy=_proxy(cluster, server, environ),
        name=name,
        **(_credentials(user, cluster, environ) if user is not None else {}),
    )


class _Entry(NamedTuple):
    """A cluster, user or context of a file."""

    data: Mapping[str, Any]
    file: Path
    name: str
    """As people look for it: `user alice`."""

    def wrong(self, what: str) -> InputError:
        """What is wrong with it, and where it stands."""
        return InputError(what, where=f"{self.file}: {self.name}")

    def get(self, key: str, kind: type[_T]) -> _T:
        """One value; an empty one where there is none."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.wrong(f"{key} must be {_CALLED[kind]}")
        return kind() if value is None else value

    def text(self, key: str) -> str:
        """One value; empty where there is none."""
        return str(self.get(key, str))

    def has(self, key: str) -> bool:
        """Whether it says `true`."""
        return self.text(key).lower() == "true"

    def path(self, key: str) -> str:
        """A path, which is relative to the file's folder; empty where there is none."""
        said = self.text(key)
        return str(self.file.absolute().parent / said) if said else ""

    def content(self, key: str) -> bytes:
        """What `KEY-data` holds, else the file that `KEY` names; empty where there is neither."""
        try:
            if said := self.text(f"{key}-data"):
                return base64.b64decode("".join(said.split()), validate=True)
            return Path(self.path(key)).read_bytes() if self.text(key) else b""
        except binascii.Error as error:
            raise self.wrong(f"{key}-data is not base64") from error
        except OSError as error:
            raise self.wrong(f"{key}: {error.filename} cannot be read: {error.strerror}") from error


def _found(kubeconfig: str, environ: Mapping[str, str], home: Path) -> list[Path]:
    """The files to read; none where neither user nor environment names one and the usual one is missing."""
    named = [kubeconfig] if kubeconfig else [name for name in environ.get("KUBECONFIG", "").split(":") if name]
    files = [home / name[2:] if name.startswith("~/") else Path(name) for name in named]
    there = [file for file in files or [home / ".kube/config"] if file.exists()]
    if named and not there:
        origin = "" if kubeconfig else "KUBECONFIG: "
        raise NoSuchCluster(f"{origin}there is no {' and no '.join(map(str, files))}")
    return there


def _read(files: Iterable[Path]) -> tuple[dict[str, dict[str, _Entry]], str]:
    """Clusters, users and contexts of all files by name, and the current context."""
    found: dict[str, dict[str, _Entry]] = {"cluster": {}, "user": {}, "context": {}}
    current = ""
    for file in files:
        try:
            text = file.read_text("utf-8-sig", errors="replace")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from error
        whole = _Entry(parse(text, str(file)).data if text.strip() else {}, file, "the file")
        current = current or whole.text("current-context")
        for kind, entries in found.items():
            for one in whole.get(f"{kind}s", list):
                if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                    raise whole.wrong(f"each entry of {kind}s needs a name")
                entry = _Entry(one, file, f"{kind} {one['name']}")
                entries.setdefault(str(one["name"]), entry._replace(data=entry.get(kind, dict)))
    return found, current


def _credentials(user: _Entry, cluster: _Entry, environ: Mapping[str, str]) -> dict[str, Any]:
    """What a user shows, as fields of `Access`."""
    for word, why in _REFUSED.items():
        if user.data.get(word):
            raise user.wrong(f"{word} cannot be used: {why}")
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if bool(certificate) != bool(key):
        raise user.wrong("a client certificate needs its key, and a key its certificate")
    said: dict[str, Any] = {
        "certificate": certificate,
        "key": key,
        "token": user.text("token"),
        "token_file": user.path("tokenFile"),
    }
    plugin = user._replace(data=user.get("exec", dict), name=f"{user.name}, exec")
    if not plugin.data or said["token"] or said["token_file"]:
        return said
    return said | {"plugin": _plugin(plugin, cluster, environ)}


def _plugin(said: _Entry, cluster: _Entry, environ: Mapping[str, str]) -> Plugin:
    version, command = said.text("apiVersion"), said.text("command")
    if version not in EXEC_VERSIONS:
        raise said.wrong(f"apiVersion {version} is none of {', '.join(EXEC_VERSIONS)}")
    if not command or said.text("interactiveMode") == "Always":
        raise said.wrong(
            "interactiveMode Always needs a terminal, which a host does not have" if command else "command is missing"
        )
    told: dict[str, Any] = {}
    if said.has("provideClusterInfo"):
        told = {key: cluster.text(key) for key in ("server", "tls-server-name", "proxy-url")}
        told["insecure-skip-tls-verify"] = cluster.has("insecure-skip-tls-verify")
        told["certificate-authority-data"] = base64.b64encode(cluster.content("certificate-authority")).decode()
    variables = dict(environ)
    for one in said.get("env", list):
        if not isinstance(one, dict) or not one.get("name"):
            raise said.wrong("each entry of env needs a name")
        variables[str(one["name"])] = str(one.get("value") or "")
    argv = (said.path("command") if "/" in command else command, *map(str, said.get("args", list)))
    told = {key: value for key, value in told.items() if value}
    return Plugin(argv, version, variables, told, said.text("installHint"))


def _is_url(said: str) -> bool:
    try:
        parts = urlsplit(said)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _server(cluster: _Entry) -> str:
    said = cluster.text("server").rstrip("/")
    url = said if "://" in said else f"https://{said}"
    if not _is_url(url) or "@" in url or "?" in url:
        raise cluster.wrong("server must be https://HOST:PORT")
    return url


def _proxy(cluster: _Entry, server: str, environ: Mapping[str, str]) -> str:
    """What stands between: what the cluster says, else the environment of the user."""
    host, name = str(urlsplit(server).hostname), f"{urlsplit(server).scheme}_proxy"
    around = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    said = cluster.text("proxy-url")
    if not said and not proxy_bypass_environment(host, {"no": around}) and not _is_within(host, around):
        said = environ.get(name) or environ.get(name.upper()) or ""
    url = said if "://" in said or not said else f"http://{said}"
    if url and not _is_url(url):
        raise cluster.wrong("a proxy must be http://HOST:PORT, other kinds are not supported")
    return url


def _is_within(host: str, networks: str) -> bool:
    """Whether it is this machine, or an address in one of the networks."""
    for network in (*_HERE, *(word.strip() for word in networks.split(",") if "/" in word)):
        with suppress(ValueError):
            if host == network or ip_address(host) in ip_network(network, strict=False):
                return True
    return False


def _of_pod(environ: Mapping[str, str], pod: Path, namespace: str, home: Path) -> Access:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (pod / "token").exists():
        lack = f"KUBECONFIG is not set, {home / '.kube/config'} has no contexts, and this process is not in a pod"
        raise NoSuchCluster(f"no cluster is configured: {lack}", hint="set KUBECONFIG, or name a file")
    try:
        own, ca = (pod / "namespace").read_text().strip(), (pod / "ca.crt").read_bytes()
    except OSError as error:
        raise InputError(f"the service account cannot be read: {error.strerror}", where=str(error.filename)) from error
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    where = "the service account of this pod"
    return Access(server, namespace or own, where, ca=ca, token_file=str(pod / "token"))
