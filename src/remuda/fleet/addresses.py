"""Addresses of this machine and of others, IPv4."""

from __future__ import annotations

import socket


def towards(host: str) -> str:
    """This machine's address on the way to `host`; nothing is sent. Empty where there is no way."""
    address = resolved(host)
    if not address:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def resolved(host: str) -> str:
    """The address of a name; empty where it has none."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return ""
