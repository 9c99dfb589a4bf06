"""The head's certificate: made once, by openssl, signed by itself. Clients know its fingerprint from their token."""

from __future__ import annotations

import hashlib
import ssl
import subprocess
import tempfile
from pathlib import Path

from remuda.base.disk.files import write_atomic
from remuda.base.errors import Unavailable

_DAYS = "3650"
_WAIT_S = 60.0


def make(path: Path) -> str:
    """See that the file is there, key and certificate in one, mode 0600; the fingerprint, hexadecimal.

    Raises:
        Unavailable: there is no openssl here, or it refuses.
    """
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
            _run(key, certificate)
            write_atomic(path, key.read_bytes() + certificate.read_bytes(), mode=0o600)
    return fingerprint(path)


def fingerprint(path: Path) -> str:
    """SHA-256 of the certificate in a file."""
    _, begin, text = path.read_text().partition("-----BEGIN CERTIFICATE-----")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(begin + text)).hexdigest()


def _run(key: Path, certificate: Path) -> None:
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", _DAYS)
    files = ("-subj", "/CN=remuda fleet", "-keyout", str(key), "-out", str(certificate))
    try:
        done = subprocess.run(
            ["openssl", "req", "-x509", *kind, *files], capture_output=True, text=True, timeout=_WAIT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise Unavailable("there is no openssl on this machine", hint="install it: apt install openssl") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"openssl has not made a certificate within {_WAIT_S:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Unavailable(f"openssl cannot make a certificate: {said}")
