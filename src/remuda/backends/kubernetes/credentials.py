"""What is shown to an API server: read from a file again, or asked of a plugin again, when it is no longer good."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from remuda.base.errors import BackendUnreachable, InputError
from remuda.base.text import short

if TYPE_CHECKING:
    from remuda.backends.kubernetes.config import Access, Plugin
    from remuda.base.clock import Clock

_FILE_FRESH_S, _PLUGIN_S = 60.0, 60.0
_GIVEN: Final = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
_FOR_EVER: Final = float("inf")


class Shown(NamedTuple):
    """What a request shows; each may be empty."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return "Shown()"


class Credentials:
    """Of one user at one server; `clock` says when they have expired."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access, self._clock = access, clock
        self._shown, self._until = Shown(), float("-inf")
        self._gate = asyncio.Lock()

    async def get(self, refused: Shown | None = None) -> Shown:
        """What to show now; other than what was refused, where there is another.

        Raises:
            BackendUnreachable: the plugin gave none; says what it wrote to stderr.
            InputError: a file or the plugin cannot be used.
        """
        async with self._gate:
            if self._shown == refused or self._clock.now() >= self._until:
                access = self._access
                own, until = Shown(access.token, access.certificate, access.key), _FOR_EVER
                if access.token_file:
                    own, until = own._replace(token=_in_file(access.token_file)), self._clock.now() + _FILE_FRESH_S
                elif access.plugin is not None:
                    own, until = _read(await _printed(access.plugin, access.context), own, access.context)
                if not (own.token.isascii() and own.token.isprintable()):
                    raise InputError(f"the token of {access.context} has characters that no token has")
                self._shown, self._until = own, until
            return self._shown


def _in_file(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError as error:
        raise InputError(f"the token cannot be read: {error.strerror}", where=path) from error


async def _printed(plugin: Plugin, context: str) -> bytes:
    name = f"the credential plugin {plugin.argv[0]} of {context}"
    spec = {"interactive": False} | ({"cluster": plugin.cluster} if plugin.cluster else {})
    asked = orjson.dumps({"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}).decode()
    try:
        process = await asyncio.create_subprocess_exec(
            *plugin.argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env={**plugin.env, "KUBERNETES_EXEC_INFO": asked}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise InputError(f"{name} cannot be started: {error.strerror}", hint=short(plugin.hint, 300)) from error
    try:
        out, err = await asyncio.wait_for(process.communicate(), _PLUGIN_S)
    except TimeoutError:
        raise BackendUnreachable(f"{name} did not answer within {_PLUGIN_S:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            await process.wait()
    if process.returncode:
        said = short(err.decode(errors="replace"), 300) or f"it ended with code {process.returncode}"
        raise BackendUnreachable(f"{name} failed: {said}")
    return out


def _read(out: bytes, own: Shown, context: str) -> tuple[Shown, float]:
    """What a plugin printed, beside the user's own certificate, and until when it is good. No error has any of it."""
    wrong = InputError(f"the credential plugin of {context} printed no token and no certificate")
    try:
        status = orjson.loads(out)["status"]
        token, certificate, key, until = (str(status.get(name) or "") for name in _GIVEN)
        ends = datetime.fromisoformat(until).timestamp() if until else _FOR_EVER
    except (AttributeError, LookupError, TypeError, ValueError):
        raise wrong from None
    if not token and not (certificate and key):
        raise wrong
    return (
        Shown(token, certificate.encode(), key.encode()) if certificate and key else own._replace(token=token)
    ), ends
