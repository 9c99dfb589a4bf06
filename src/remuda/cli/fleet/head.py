"""`host token`, and what `host start --port` says."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import show_counted, show_duration
from remuda.cli import typed
from remuda.cli.lazy import NearGroup
from remuda.cli.show import echo, print_json, say, table

if TYPE_CHECKING:
    from remuda.client.http import HostClient

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(name="token", cls=NearGroup, invoke_without_command=True)
@click.option("--expires", default="24h", show_default=True, metavar="TIME", help="Time for which it is good.")
@click.option("--uses", default=1000, type=click.IntRange(1, 100_000), show_default=True,
              help="Number of machines that may join with it.")  # fmt: skip
@_JSON
@click.pass_context
def token(context: click.Context, expires: str, uses: int, as_json: bool) -> None:
    """Print a token, with which other machines may join this host's fleet; list or revoke tokens."""
    if context.invoked_subcommand is not None:
        return
    from remuda.client.http import connect

    made = mint(connect(), typed.duration(expires, "--expires"), uses)
    if as_json:
        print_json(made)
        return
    echo(made["token"], exact=True)


def mint(host: HostClient, life_s: float, uses: int) -> dict[str, Any]:
    """A new token, and where it is good."""
    made: dict[str, Any] = host.post("/fleet/tokens", {"life_s": life_s, "uses": uses})
    return made


@token.command(name="list")
@_JSON
def list_(as_json: bool) -> None:
    """List tokens: what is left of each, and never its secret."""
    from remuda.client.http import connect

    found = connect().get("/fleet/tokens")
    if as_json:
        print_json(found)
        return
    rows = [
        [one["id"], f"{one['uses']}/{one['most']}", show_duration(max(0.0, one["ends_at"] - time.time())),
         one["refusal"] or "good"]
        for one in found
    ]  # fmt: skip
    table(["token", "uses", "good for", "state"], rows, empty="there are no tokens; remuda host token makes one")


@token.command()
@click.argument("name", metavar="TOKEN")
def revoke(name: str) -> None:
    """Revoke a token: nothing joins with it any more. Nodes that joined with it stay.

    TOKEN is its id, the first word of `token list`.
    """
    from remuda.client.http import connect

    connect().delete(f"/fleet/tokens/{name}")
    say(f"the token {name} is revoked")


@click.command()
@_JSON
def health(as_json: bool) -> int:
    """Check every node of this host's fleet. Ends with 1, and a reason for each, where one is not well."""
    from remuda.base.errors import NotFound
    from remuda.client.http import connect

    view = connect().get("/fleet")
    if not view:
        raise NotFound("this host is not the head of a fleet", hint="remuda doctor checks this machine")
    rows = [
        [one["name"], one["address"], f"{show_duration(one['heard_s'])} ago", _reasons(one)] for one in view["nodes"]
    ]
    is_well = not view["trouble"] and not any(one["problems"] for one in view["nodes"])
    if as_json:
        print_json({"well": is_well, "trouble": view["trouble"], "nodes": view["nodes"]})
        return not is_well
    if view["trouble"]:
        say(view["trouble"])
    table(["node", "address", "heard", "health"], rows, empty="no machine has joined; remuda host token")
    return not is_well


def _reasons(one: dict[str, Any]) -> str:
    return "; ".join(one["problems"]) or ("well, and leaving" if one["leaving"] else "well")


def tell_head(view: dict[str, Any], host: HostClient) -> None:
    """What the user of a head types on other machines."""
    http = view["http_port"]
    extra = f" --http-port {http}" if http != view["port"] + 1 else ""
    made = mint(host, 24 * 3600.0, 1000)
    say(f"this machine is the head of a fleet, at {view['address']}:{view['port']} (clients: HTTPS at port {http})")
    say("to join, on each other machine one of:")
    say(f"  remuda client connect {getpass.getuser()}@{view['address']}")
    say(f"  remuda client connect {view['address']}:{view['port']}{extra} --token-file FILE")
    say("the token for FILE, good for 24 h (again: remuda host token):")
    echo(made["token"], exact=True)


def fleet_line(view: dict[str, Any]) -> str:
    """A fleet in one line; empty without one."""
    if not view:
        return ""
    ill = [f"{one['name']}: {one['problems'][0]}" for one in view["nodes"] if one["problems"]]
    said = f"fleet at {view['address']}:{view['port']}: {show_counted(len(view['nodes']), 'node')}"
    return view["trouble"] or "; ".join([said, *ill[:3], *(["see remuda health"] if ill else [])])
