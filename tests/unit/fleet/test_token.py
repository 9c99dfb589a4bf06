"""Tokens, what is kept of them, and when they open."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from remuda.base.errors import InputError, NotFound, RemudaError
from remuda.fleet import token
from remuda.fleet.roll import Roll
from remuda.wire.fleet import Joining

FINGERPRINT = "ab" * 32
NOW = 1_000_000.0


def test_a_token_is_read_as_it_was_printed() -> None:
    made, ticket = token.mint(FINGERPRINT, NOW)
    assert token.read(f" {made}\n") == made
    assert str(made).split(".")[0] == "rmd1"
    assert (ticket.id, ticket.ends_at - ticket.made_at) == (made.id, 24 * 3600)


@pytest.mark.parametrize("cut", ["", "rmd1", "rmd1.abcde.00", f"rmd2.abcde.{'0' * 64}.{FINGERPRINT}"])
def test_half_a_token_is_refused_and_not_repeated(cut: str) -> None:
    with pytest.raises(InputError) as caught:
        token.read(cut, where="--token-file")
    assert caught.value.message == "--token-file: this is not a token of a fleet, or only a part of one"


def test_a_token_shows_its_secret_to_nobody_who_prints_it() -> None:
    made, ticket = token.mint(FINGERPRINT, NOW)
    assert made.secret not in repr(made)
    assert made.secret not in repr(ticket)


@pytest.mark.parametrize(
    ("change", "later", "why"),
    [
        ({}, 0.0, ""),
        ({}, 24 * 3600 - 1, ""),
        ({}, 24 * 3600 + 60, "the token abcde expired 1m ago"),
        ({"uses": 1, "most": 1}, 0.0, "the token abcde is used up: it was for 1 node"),
        ({"uses": 1, "most": 2}, 0.0, ""),
        ({"revoked": True}, 0.0, "the token abcde was revoked"),
    ],
)
def test_when_a_token_opens(change: dict[str, object], later: float, why: str) -> None:
    ticket = token.Ticket("abcde", token.digest("s"), NOW, NOW + token.LIFE_S)
    assert dataclasses.replace(ticket, **change).refusal(NOW + later) == why  # type: ignore[arg-type]


def joining(name: str = "n1", key: str = "k" * 64) -> Joining:
    return Joining(name=name, key=key, uid=0, at=NOW, slurm="22.05.8", address="10.0.0.2", cpus=1, memory=1)


@pytest.fixture
def roll(tmp_path: Path) -> Roll:
    return Roll(tmp_path / "roll.json")


def minted(roll: Roll, most: int = 10) -> token.JoinToken:
    made, ticket = token.mint(FINGERPRINT, NOW, most=most)
    roll.add(ticket)
    return made


def again(roll: Roll) -> Roll:
    """As the next host reads it."""
    return Roll(roll._path)


def test_neither_secrets_nor_keys_are_kept(roll: Roll) -> None:
    made = minted(roll)
    roll.join(joining(), made, NOW)
    text = roll._path.read_text()
    assert made.secret not in text
    assert "k" * 64 not in text
    assert roll._path.stat().st_mode & 0o777 == 0o600


def test_a_use_and_its_node_are_one_write(roll: Roll) -> None:
    made = minted(roll, most=1)
    roll.join(joining(), made, NOW)
    kept = again(roll)
    assert (kept.tickets[made.id].uses, [*kept.members]) == (1, ["n1"])
    assert kept.opens(made.id, made.secret, NOW) == f"the token {made.id} is used up: it was for 1 node"


def test_a_node_that_asks_twice_uses_one(roll: Roll) -> None:
    made = minted(roll, most=2)
    for _ in range(3):
        roll.join(joining(), made, NOW)
    assert again(roll).tickets[made.id].uses == 1
    roll.join(joining("n2", "m" * 64), made, NOW)
    assert again(roll).tickets[made.id].uses == 2


def test_a_wrong_secret_opens_nothing(roll: Roll) -> None:
    made = minted(roll)
    for name, secret in ((made.id, "0" * 64), ("zzzzz", made.secret), ("", "")):
        assert roll.opens(name, secret, NOW) == "this fleet has no such token"
    assert roll.opens(made.id, made.secret, NOW) == ""


def test_a_revoked_token_stays_so_and_its_nodes_stay(roll: Roll) -> None:
    made = minted(roll)
    roll.join(joining(), made, NOW)
    roll.revoke(made.id)
    kept = again(roll)
    assert kept.opens(made.id, made.secret, NOW) == f"the token {made.id} was revoked"
    assert kept.by_key("k" * 64) == kept.members["n1"]
    with pytest.raises(NotFound, match="there is no token 'zzzzz'"):
        roll.revoke("zzzzz")


def test_what_cannot_be_written_has_not_happened(roll: Roll) -> None:
    made = minted(roll)
    Path(roll._path).parent.rename(roll._path.parent.with_name("away"))
    with pytest.raises(RemudaError, match=r"roll\.json cannot be written"):
        roll.join(joining(), made, NOW)
    assert roll.members == {}
    assert roll.tickets[made.id].uses == 0


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "roll.json"
    for text in ("", "[]", json.dumps({"tickets": [{}], "members": []})):
        path.write_text(text)
        with pytest.raises(RemudaError, match=r"roll\.json cannot be read"):
            Roll(path)
