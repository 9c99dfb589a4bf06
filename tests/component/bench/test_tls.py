"""Endpoints behind TLS whose certificate nobody else has signed."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.fakes.engine import Behaviour, Engine

from remuda.base.errors import Unavailable
from remuda.bench.generator import load_workers
from remuda.bench.generator.http_stream import RequestTarget
from remuda.bench.generator.prompts import PromptFit
from remuda.bench.load import Load
from remuda.bench.probe import Fitted, look

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def certificate(folder: Path) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(form))
    key_file.write_bytes(key.private_bytes(form, serialization.PrivateFormat.PKCS8, plain))
    return cert_file, key_file


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """An engine behind TLS, its URL and its certificate."""
    cert, key = certificate(folder)
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(cert, key)
    server = await asyncio.start_server(Engine("tiny", Behaviour()).converse, "127.0.0.1", 0, ssl=secure)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", str(cert)
    server.close()


async def test_a_certificate_that_is_refused_reads_as_such(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, _):
        with pytest.raises(Unavailable) as caught:
            await look(RequestTarget(url))
    assert str(caught.value) == f"endpoint {url} does not answer: its certificate is refused: self-signed certificate"
    assert "--ca-file FILE" in caught.value.hint


async def test_a_server_without_tls_reads_as_such() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    with pytest.raises(Unavailable, match="there is no TLS with it: "):
        await look(RequestTarget(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    server.close()


@pytest.mark.parametrize("is_checked", [True, False])
async def test_it_is_measured_by_its_own_certificate_or_unchecked(tmp_path: Path, is_checked: bool) -> None:
    async with serving(tmp_path) as (url, cert):
        place = RequestTarget(url, ca_file=cert) if is_checked else RequestTarget(url, verify=False)
        assert (await look(place)).models == ("tiny",)
        async with load_workers.Crew(Load(40, 8, requests=6), place, "tiny", Fitted(PromptFit(), forced=True)) as made:
            run = await made.run(enough=lambda _: False, show=lambda _: None)
    assert [row.error for row in run.rows] == [""] * 6
