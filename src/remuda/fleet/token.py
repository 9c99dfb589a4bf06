"""Tokens: with one a machine may join a fleet. `rmd1.ID.SECRET.SHA256`, the last of the head's certificate. Pure.

A token is kept as the digest of its secret; the text itself is shown once, to whoever asked for it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from remuda.base.errors import InputError
from remuda.base.ids import new_suffix
from remuda.base.units import show_counted, show_duration

LIFE_S = 24 * 3600.0
USES = 1000
_TOKEN = re.compile(r"rmd1\.([a-z0-9]{4,16})\.([0-9a-f]{32,64})\.([0-9a-f]{64})")


@dataclass(frozen=True)
class JoinToken:
    """What whoever joins has in hand."""

    id: str
    secret: str
    fingerprint: str
    """SHA-256 of the head's certificate, hexadecimal: who answers with another is somebody else."""

    def __str__(self) -> str:
        return f"rmd1.{self.id}.{self.secret}.{self.fingerprint}"

    def __repr__(self) -> str:
        return f"Token({self.id})"


@dataclass(frozen=True)
class Ticket:
    """What the head keeps of a token."""

    id: str
    digest: str
    made_at: float
    ends_at: float
    most: int = USES
    """Nodes that may join with it."""
    uses: int = 0
    revoked: bool = False

    def refusal(self, now: float) -> str:
        """Why it opens nothing any more, in a sentence; empty when it does."""
        if self.revoked:
            return f"the token {self.id} was revoked"
        if now >= self.ends_at:
            return f"the token {self.id} expired {show_duration(now - self.ends_at)} ago"
        if self.uses >= self.most:
            return f"the token {self.id} is used up: it was for {show_counted(self.most, 'node')}"
        return ""


def digest(secret: str) -> str:
    """What is kept of a secret. It has 256 random bits, so a plain hash will do."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret(said: str, kept: str) -> bool:
    """Whether that is the secret of a kept digest; takes the same time whatever is wrong with it."""
    return hmac.compare_digest(digest(said), kept)


def mint(fingerprint: str, now: float, *, life_s: float = LIFE_S, most: int = USES) -> tuple[JoinToken, Ticket]:
    """A new token, and what is kept of it."""
    token = JoinToken(new_suffix(), secrets.token_hex(32), fingerprint)
    return token, Ticket(token.id, digest(token.secret), now, now + life_s, most)


def read(text: str, *, where: str = "") -> JoinToken:
    """The token that a user has.

    Raises:
        InputError: it is none. The message does not repeat it.
    """
    found = _TOKEN.fullmatch(text.strip())
    if found is None:
        hint = "a token begins with rmd1. and is printed by: remuda host token"
        raise InputError("this is not a token of a fleet, or only a part of one", hint=hint, where=where)
    return JoinToken(*found.groups())


def of_words(text: str) -> JoinToken:
    """The token of `ID.SECRET`, as it is shown to the head, which knows its own certificate."""
    name, _, secret = text.partition(".")
    return JoinToken(name, secret, "")
