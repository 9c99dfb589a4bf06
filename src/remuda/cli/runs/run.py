"""`run`: start scripts and keep them running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.lazy import drawn, dry, examples
from remuda.cli.show import echo, say
from remuda.cli.staying import WithArguments, finished, stay
from remuda.specs.places import is_here

if TYPE_CHECKING:
    from collections.abc import Sequence


_EMPTY: tuple[str, ...] = ()
_HEADINGS = {
    "Common": "name gpus min-vram partitions time array follow wait dry-run verbose json set",
    "Resource": "gpu-type max-vram gres nodes cpus-per-task mem time-limit",
    "Placement": "backend prefer account qos constraint reservation exclude-nodes node-list hedge retry-per-partition "
    "reset-to-preferred",
    "Kubernetes": "image namespace context kubeconfig service-account node-selector tolerations image-pull-secrets "
    "mounts queue security run-as-user runtime-class gpu-resource ttl",
    "Restart": "mode keep-alive max-retries heal-after quick-failure backoff-base backoff-max requeue",
    "Health": "heartbeat-interval heartbeat-grace progress-stall gpu-check blacklist-ttl blacklist-limit no-blacklist",
    "Script": "env workdir modules preamble python output error signal kill-grace profile",
    "Slurm": "job-name mail-user sbatch-args",
}


@click.command(
    cls=WithArguments,
    headings=_HEADINGS,
    epilog=examples("remuda run train.sh --gpus 4 --min-vram 40", "remuda run train.sh --follow -- --lr 0.1"),
)
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@drawn(Path(__file__).with_name("run_options.json"))
@click.option("-t", "--time", metavar="TIME", help="Time limit in sbatch's format: 90 (minutes), 1:30:00, 2-12.")
@click.option("--gres", metavar="gpu[:TYPE]:N", help="GPUs in sbatch's format.")
@click.option("-J", "--job-name", metavar="TEXT", help="Name of the run; characters that --name refuses are replaced.")
@click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Field of a run document to set.")
@dry("Show exactly what would be sent, and send nothing.")
@click.option("-f", "--follow", is_flag=True, help="Show its output until it ends.")
@click.option("--wait", is_flag=True, help="Wait until it ends; exit with 1 if it failed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def run(
    ctx: click.Context, /, scripts: tuple[str, ...], dry_run: bool, follow: bool, wait: bool, as_json: bool,
    **values: Any,
) -> int:  # fmt: skip
    """Run SCRIPT and restart it after a crash, a hang, a lost node, preemption or the time limit.

    Set resources in #REMUDA lines at the top of the script (#REMUDA --gpus 4 --min-vram 40), or with flags; flags win.
    SCRIPT may also be a YAML file of kind run. Each script becomes a run. remuda keeps a copy of the script, so editing
    the file does not change a run that restarts at night.
    """
    from remuda.cli import plans
    from remuda.client import runs, submission

    if len(scripts) > 1 and (values["name"] or follow):
        raise click.UsageError("--name and --follow are for one script")
    given = {key: value for key, value in values.items() if value not in (None, _EMPTY)}
    planned = submission.ask("run", dry_run=dry_run, scripts=scripts, given=given, args=ctx.meta["remuda.args"])
    if plans.tell(planned, dry_run=dry_run, as_json=as_json):
        return 0
    views = submission.send(planned)
    names = [str(view["name"]) for view in views]
    if not as_json:
        _announce(views)
    if follow:
        return stay(names[0], runs.follow)
    if wait:
        views = runs.ended(names)
    return finished(views, wait=wait, as_json=as_json)


def _announce(views: Sequence[dict[str, Any]]) -> None:
    from remuda.client.cluster_match import silence

    for view in views:
        pools = view["run"]["pools"] if view["run"] else ()
        where = f" on {view['backend']}" + (f": {' → '.join(pools)}" if pools else "")
        say(f"{view['name']} is accepted{where}")
    if not is_here(views[0]["backend"]) and (why := silence(views[0])):
        say(f"note: the host does not reach {views[0]['backend']}, and keeps trying: {why}")
        say("  if this command reaches it, start a host with its environment: remuda host stop, then remuda host start")
    name = views[0]["name"]
    if len(views) == 1:
        say(f"  remuda status {name} · remuda logs {name} -f · remuda explain {name} · remuda stop {name}")
        echo(name)
        return
    say("  remuda list · remuda logs NAME -f · remuda explain NAME · remuda stop NAME")
    for view in views:
        echo(view["name"])
