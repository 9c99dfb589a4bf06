"""What is shown to a server, renewed when it has expired or was refused: with real programs that print it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import has_ended, until
from tests.fakes.clock import FakeClock

from remuda.backends.kubernetes import credentials
from remuda.backends.kubernetes.config import EXEC_VERSIONS, Access, Plugin
from remuda.backends.kubernetes.credentials import Credentials, Shown
from remuda.base.errors import BackendUnreachable, InputError

if TYPE_CHECKING:
    from pathlib import Path

V1 = EXEC_VERSIONS[0]
CONTEXT = "context here of /k"


def access(**own: Any) -> Access:
    return Access("https://c", "default", CONTEXT, **own)


def program(folder: Path, text: str, *, version: str = V1, **told: Any) -> Plugin:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(stat.S_IRWXU)
    return Plugin((str(path), "me"), version, {"PATH": os.environ["PATH"], "AT": str(folder)}, told)


def printed(**status: object) -> str:
    return f"cat <<'END'\n{json.dumps({'kind': 'ExecCredential', 'status': status})}\nEND"


async def test_a_token_stays(tmp_path: Path) -> None:
    shows = Credentials(access(token="t", certificate=b"C", key=b"K"), FakeClock())
    first = await shows.get()
    assert (first, repr(first)) == (Shown("t", b"C", b"K"), "Shown()")
    assert await shows.get(first) == first, "there is no other"


async def test_a_file_is_read_again(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "token"
    path.write_text("one\n")
    shows = Credentials(access(token="zero", token_file=str(path)), clock)
    assert (await shows.get()).token == "one"
    path.write_text("two\n")
    clock.advance(59)
    assert (await shows.get()).token == "one"
    clock.advance(1)
    assert (await shows.get()).token == "two"
    path.write_text("three")
    assert (await shows.get(Shown("two"))).token == "three", "at once where it was refused"
    assert (await shows.get(Shown("two"))).token == "three", "for the second one that was refused, too"
    path.unlink()
    with pytest.raises(InputError, match=rf"^{path}: the token cannot be read: No such file or directory$"):
        await shows.get(Shown("three"))


@pytest.mark.parametrize("version", EXEC_VERSIONS)
async def test_a_plugin_is_told_who_asks_and_asked_again_when_it_says(tmp_path: Path, version: str) -> None:
    clock = FakeClock(1_700_000_000.0)  # 2023-11-14T22:13:20Z
    text = """printf '%s' "$KUBERNETES_EXEC_INFO" > "$AT/told"; echo . >> "$AT/asked"
    n=$(wc -l < "$AT/asked")
    echo '{"status": {"token": "t'$n-$1'", "expirationTimestamp": "2023-11-14T22:14:20Z"}}'
    """
    shows = Credentials(access(plugin=program(tmp_path, text, version=version, server="https://c")), clock)
    one, same = await asyncio.gather(shows.get(), shows.get())
    assert one == same == Shown("t1-me")
    spec = {"interactive": False, "cluster": {"server": "https://c"}}
    assert json.loads((tmp_path / "told").read_text()) == {
        "apiVersion": version, "kind": "ExecCredential", "spec": spec
    }  # fmt: skip
    both = await asyncio.gather(shows.get(one), shows.get(one))
    assert set(both) == {Shown("t2-me")}, "once for all that were refused"
    clock.advance(59.5)
    assert await shows.get() == Shown("t2-me")
    clock.advance(0.5)
    assert await shows.get() == Shown("t3-me")


async def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    text = printed(clientCertificateData="CERT", clientKeyData="KEY")
    shows = Credentials(access(plugin=program(tmp_path, text)), FakeClock())
    assert await shows.get() == Shown("", b"CERT", b"KEY")
    shows = Credentials(access(plugin=program(tmp_path, printed(token="t")), certificate=b"C", key=b"K"), FakeClock())
    assert await shows.get() == Shown("t", b"C", b"K"), "its token beside the user's own certificate"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo 'SSO has expired:\nlog in' >&2; echo SECRET; exit 3", "SSO has expired: log in"),
        ("echo SECRET; exit 3", "it ended with code 3"),
    ],
)
async def test_what_a_plugin_says_of_its_failure(tmp_path: Path, text: str, says: str) -> None:
    shows = Credentials(access(plugin=program(tmp_path, text)), FakeClock())
    with pytest.raises(BackendUnreachable) as raised:
        await shows.get()
    assert str(raised.value) == f"the credential plugin {tmp_path}/login of {CONTEXT} failed: {says}"


@pytest.mark.parametrize(
    "text",
    [
        "echo SECRET",
        "echo '[]'",
        "echo '{\"status\": null}'",
        'echo \'{"status": "SECRET"}\'',
        printed(),
        printed(token=None),
        printed(clientCertificateData="SECRET"),
        printed(token="SECRET", expirationTimestamp="tomorrow"),
    ],
)
async def test_a_plugin_that_prints_something_else(tmp_path: Path, text: str) -> None:
    shows = Credentials(access(plugin=program(tmp_path, text)), FakeClock())
    with pytest.raises(InputError) as raised:
        await shows.get()
    assert str(raised.value) == f"the credential plugin of {CONTEXT} printed no token and no certificate"
    assert "SECRET" not in repr(raised.value.__cause__)


@pytest.mark.parametrize("token", ["a b\nc", "naïve", "\x1b[1m"])
async def test_a_token_that_is_none(token: str) -> None:
    with pytest.raises(InputError) as raised:
        await Credentials(access(token=token), FakeClock()).get()
    assert str(raised.value) == f"the token of {CONTEXT} has characters that no token has"


async def test_a_plugin_that_is_not_there_is_told_how_to_get(tmp_path: Path) -> None:
    shows = Credentials(access(plugin=Plugin((str(tmp_path / "aws"),), V1, {}, {}, "install\nit")), FakeClock())
    with pytest.raises(InputError, match=rf"^the credential plugin {tmp_path}/aws of {CONTEXT} cannot be") as raised:
        await shows.get()
    assert raised.value.hint == "install it"


async def test_a_plugin_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_PLUGIN_S", 0.5)
    text = "sh -c 'echo $$ > \"$AT/pid\"; exec sleep 1000' & wait"
    shows = Credentials(access(plugin=program(tmp_path, text)), FakeClock())
    with pytest.raises(BackendUnreachable, match=r"did not answer within 0.5 s$"):
        await shows.get()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: has_ended(pid), "what it started has ended")
