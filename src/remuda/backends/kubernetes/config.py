"""From kubeconfigs, or from the pod that this is, to a server and who asks: as kubectl reads them."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment

from remuda.base.errors import InputError
from remuda.specs.reading.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_TRUE: Final = ("true", "True", "TRUE")


@dataclass(frozen=True)
class Plugin:
    """A program that prints credentials."""

    argv: tuple[str, ...]
    version: str
    """Of `EXEC_VERSIONS`."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    tells_cluster: bool = False
    hint: str = ""
    """How to install it."""


@dataclass(frozen=True)
class Access:
    """One server, a namespace there, and who asks. Its repr shows no secret."""

    server: str
    """`https://HOST:PORT`, with a path where there is one, without a slash at its end."""
    namespace: str
    context: str = ""
    """What the user calls it, for sentences: `context NAME of FILE`, or `the service account of this pod`."""
    ca: bytes | None = None
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

    Of several files the first wins that says something, a cluster, user or context as a whole.

    Args:
        kubeconfig: a file.
        context: one of its contexts; empty: its current one.
        namespace: in place of the context's.
        environ: environment of the user.
        home: the user's home directory.
        pod: where a pod has its service account.

    Raises:
        InputError: none is found, or what is found cannot be used; says file and key.
    """
    raise NotImplementedError
