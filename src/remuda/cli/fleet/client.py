"""`client connect | status | disconnect | logs`."""

from __future__ import annotations

import click

from remuda.base.units import show_duration
from remuda.cli.lazy import NearGroup, examples
from remuda.cli.show import echo, pairs, print_json, say


@click.group(cls=NearGroup)
def client() -> None:
    """Make this machine a node of a fleet, or take it out again."""


@client.command(
    epilog=examples("remuda client connect me@head", "remuda client connect head:8090 --token-file F --resilient")
)
@click.argument("where", metavar="HOST:PORT|USER@HOST")
@click.option("--token-file", default="", metavar="FILE", help="File with the token that the head printed; - is stdin.")
@click.option("--http-port", type=click.IntRange(1, 65535), help="Port of the head's HTTPS (default: PORT + 1).")
@click.option("--resilient", is_flag=True, help="Wait for a head that is gone, without end.")
@click.option("--node-id", default="", metavar="NAME", help="Name of the node (default: the machine's).")
@click.option("--gpus", metavar="TYPE:COUNT", help="GPUs to offer (default: what the NVIDIA driver finds).")
@click.option("--unpack", is_flag=True, help="Fetch Slurm and munge from Debian's packages, without root.")
@click.option("--detach", is_flag=True, help="Return when the machine has joined; the client runs in the background.")
def connect(
    where: str, token_file: str, http_port: int | None, resilient: bool, node_id: str, gpus: str | None, unpack: bool,
    detach: bool,
) -> int:  # fmt: skip
    """Join the fleet of a head, and stay in it: in this terminal, or with --detach in the background.

    USER@HOST fetches a token over ssh. What the client starts outlives it: killed or restarted, it ends nothing.
    """
    from remuda.base.disk.paths import state_paths
    from remuda.fleet import joining, membership

    paths = state_paths()
    if pid := membership.running(paths.fleet_node):
        now = joining.status(paths)
        say(f"the client runs already (pid {pid}): node {now['name']} of the fleet at {now['head']}, {now['state']}")
        return 0
    paths.prepare()
    text = joining.read_token(token_file) if token_file else ""
    asked = joining.Asked(where, text, http_port or 0, node_id, gpus, resilient=resilient, unpack=unpack)
    it = joining.prepare(paths, asked)
    if detach:
        joining.start(paths)
        say(f"node {it.name} is in the fleet at {it.host}; remuda client status shows it")
        return 0
    joining.run(paths, say)
    if membership.read(paths.fleet_node) is not None:
        say("the client has ended, and what it started runs on: remuda client connect continues, "
            "remuda client disconnect leaves")  # fmt: skip
    return 0


@client.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> int:
    """Show this machine as a node: its link to the head, and its daemons. Ends with 5 where the link is down."""
    from remuda.base.disk.paths import state_paths
    from remuda.fleet import joining

    it = joining.status(state_paths())
    code = 0 if it["state"] == "connected" else 5
    if as_json:
        print_json(it)
        return code
    heard = f", heard {show_duration(it['heard_s'])} ago" if it["heard_s"] is not None else ""
    pairs([
        ("node", it["name"]),
        ("head", it["head"]),
        ("link", f"{it['state']}{heard}"),
        ("client", f"pid {it['pid']}" if it["pid"] else "not running; remuda client connect starts it"),
        *((name, f"pid {it[name]}" if it[name] else "not running") for name in ("slurmd", "munged")),
    ])  # fmt: skip
    return code


@client.command()
@click.option("--force", is_flag=True, help="Give up what runs here, and a head that does not answer.")
def disconnect(force: bool) -> None:
    """Leave the fleet: nothing new comes, and when nothing runs here any more, the node is gone."""
    from remuda.base.disk.paths import state_paths
    from remuda.fleet import joining

    joining.disconnect(state_paths(), say, force=force)
    say("this machine has left the fleet")


@client.command()
@click.option("-n", "--lines", "tail", default=50, type=click.IntRange(min=0), show_default="50",
              help="Show the last N lines (0: all).")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Follow new lines.")
@click.option("--slurmd", is_flag=True, help="Show the log of this node's slurmd.")
def logs(tail: int, follow: bool, slurmd: bool) -> None:
    """Print the log of the client in the background, or that of its slurmd."""
    from remuda.base.disk.paths import state_paths
    from remuda.base.errors import NotFound
    from remuda.client import host_log
    from remuda.fleet.membership import LOG

    folder = state_paths().fleet_node
    path = next(folder.glob("slurm/log/slurmd.*.log"), folder / "slurm/log/slurmd.log") if slurmd else folder / LOG
    if not path.exists():
        raise NotFound(f"there is no {path} yet", hint="remuda client connect … --detach")
    host_log.read(path, echo, tail=tail, follow=follow)
