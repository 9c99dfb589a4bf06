"""`run`: start scripts and keep them running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from remuda.base.units import is_interval
from remuda.cli.lazy import examples
from remuda.cli.show import echo, print_json, say
from remuda.specs.help import help_of
from remuda.specs.places import is_here
from remuda.specs.run import ALIASES, FLAGS, SWITCHES, WITHOUT, RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from remuda.control.runs import Said
    from remuda.specs.resolve import Override

_REPEATED = frozenset({"modules", "preamble", "partitions"})
_CHOICES = {"backend": ("local", "slurm"), "mode": ("run_once", "indefinite"), "prefer": ("max", "min")}
_HIDDEN = frozenset({"checkpoint_every", "checkpoint_cost", "restart_cost"})
_SHORT = {"name": "-n", "partitions": "-p", "account": "-A", "nodes": "-N", "cpus_per_task": "-c", "qos": "-q",
          "array": "-a"}  # fmt: skip
_OF_SBATCH = {"time": "time", "gres": "gres", "job_name": "job-name"}
"""Options that are read as sbatch reads them, because they mean fields with other words or units."""
_EMPTY: tuple[str, ...] = ()


def _options(command: Any) -> Any:
    """One option for each field of a run: what the script's head can say, the command line can, too."""
    for flag, key in reversed(FLAGS.items()):
        command = _option(flag, key)(command)
    return command


def _option(flag: str, key: str) -> Any:
    text = " ".join(help_of(RunSpec, key).replace("`", "").split())
    others = [f"--{alias}" for alias, meant in ALIASES.items() if meant == key]
    names = [*([_SHORT[key]] if key in _SHORT else []), f"--{flag}", *others, key]
    if key == "secret_env":
        return lambda command: command
    if key == "env":
        text = "NAME=VALUE for the script, or NAME for the value here; secrets travel as files."
        return click.option(*names, multiple=True, metavar="NAME[=VALUE]", help=text)
    if key in SWITCHES:
        positive = not flag.startswith("no-")
        both = f"--{flag}/--no-{flag}" if positive else f"--{flag}"
        return click.option(both, key, is_flag=True, default=None, help=text)
    if key in WITHOUT:
        return click.option(*names, is_flag=False, flag_value=WITHOUT[key], metavar="[FREQ]", help=text)
    kind = click.Choice(_CHOICES[key]) if key in _CHOICES else None
    return click.option(
        *names, type=kind, default=_EMPTY if key in _REPEATED else None, multiple=key in _REPEATED, help=text,
        metavar=None if kind else _metavar(key), hidden=key in _HIDDEN,
    )  # fmt: skip


def _metavar(key: str) -> str:
    if key in ("min_vram", "max_vram"):
        return "GB"
    annotation = RunSpec.model_fields[key].annotation
    kinds = {annotation, *get_args(annotation)}
    return "N" if int in kinds else "TIME" if float in kinds else "TEXT"


def _completed(args: Sequence[str]) -> Iterator[str]:
    """Words, with a value for a flag that stands without one: what follows it may be the script."""
    for word, following in zip(args, [*args, ""][1:], strict=True):
        key = word.removeprefix("--")
        is_bare = word == f"--{key}" and key in WITHOUT and not is_interval(following)
        yield f"{word}={WITHOUT[key]}" if is_bare else word


class WithArguments(click.Command):
    """Everything after `--` belongs to the script, or is the command itself.

    Args:
        own: what stands behind `--` when it is more than arguments.
    """

    def __init__(self, *args: Any, own: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own = own

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the script's own arguments aside."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["remuda.args"] = tuple(args[end + 1 :])
        return super().parse_args(ctx, [*_completed(args[:end])])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """`SCRIPT... [-- ARGS]`."""
        return [*super().collect_usage_pieces(ctx), f"-- {self.own}" if self.own else "[-- ARGS]"]


@click.command(
    cls=WithArguments,
    epilog=examples("remuda run train.sh --gpus 4 --min-vram 40", "remuda run train.sh --follow -- --lr 0.1"),
)
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@_options
@click.option("-t", "--time", metavar="TIME", help="Time limit as sbatch has it: 90 (minutes), 1:30:00, 2-12.")
@click.option("--gres", metavar="gpu[:TYPE]:N", help="GPUs as sbatch has them.")
@click.option("-J", "--job-name", metavar="TEXT", help="The same as --name, made fit to be one.")
@click.option("--dry-run", is_flag=True, help="Show exactly what would be sent, and send nothing.")
@click.option("-f", "--follow", is_flag=True, help="Stay, and show its output until it ends.")
@click.option("--wait", is_flag=True, help="Stay until it ends; exit code 1 when it failed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def run(
    ctx: click.Context, /, scripts: tuple[str, ...], dry_run: bool, follow: bool, wait: bool, as_json: bool,
    **values: Any,
) -> int:  # fmt: skip
    """Run SCRIPT and restart it after a crash, a hang, a lost node, preemption or the time limit.

    Set resources in #REMUDA lines at the top of the script (#REMUDA --gpus 4 --min-vram 40), or with flags; flags win.
    SCRIPT may also be a YAML file of kind run. Several scripts are several runs. A copy of the script is kept, so
    editing the file does not change a run that is restarted at night.
    """
    from remuda.cli import plans
    from remuda.control import planning, runs

    if len(scripts) > 1 and (values["name"] or follow):
        raise click.UsageError("--name and --follow are for one script")
    overrides = _overrides(values, ctx.meta["remuda.args"])
    facts = planning.facts_of()
    planned = runs.plan(scripts, overrides, facts)
    if plans.tell(planned, facts, dry_run=dry_run, as_json=as_json):
        return 0
    views = planning.send(planned, facts=facts)
    names = [str(view["name"]) for view in views]
    if not as_json:
        _announce(views)
    if follow:
        return stay(names[0], runs.follow)
    if wait:
        views = runs.ended(names)
    if as_json:
        print_json(views if len(views) > 1 else views[0])
    elif wait:
        for view in views:
            say(f"{view['name']} is {view['phase']}" + (f": {view['reason']}" if view["reason"] else ""))
    return 1 if wait and any(view["phase"] != "DONE" for view in views) else 0


def _overrides(values: dict[str, Any], args: Sequence[str]) -> list[Override]:
    from remuda.control.runs import kept_variable
    from remuda.specs.resolve import Override
    from remuda.specs.strict import Plain

    given = {flag: values[key] for key, flag in _OF_SBATCH.items() if values.get(key) is not None}
    overrides: list[Override] = [one for flag, value in given.items() for one in _as_sbatch(flag, value)]
    for key, value in values.items():
        if key in _OF_SBATCH:
            continue
        flag = f"--{key.replace('_', '-')}"
        if key == "env":
            overrides += [kept_variable(text) for text in value]
        elif isinstance(value, tuple):
            overrides += [Override(key, list(value), flag)] if value else []
        elif value is not None:
            overrides.append(Override(key, value if isinstance(value, bool) else Plain(value), flag))
    return [*overrides, Override("args", list(args), "--")] if args else overrides


def _as_sbatch(flag: str, value: str) -> list[Override]:
    """What an option of sbatch's means for a run.

    Raises:
        InputError: it cannot be read, or means nothing that a run has.
    """
    from shlex import quote

    from remuda.base.errors import InputError
    from remuda.specs.resolve import Override
    from remuda.specs.sbatch import SbatchLine, take_options

    where = f"--{flag}"
    try:
        taken = take_options([SbatchLine(0, f"{where}={quote(value)}")], where)
    except InputError as error:
        message = error.message.removeprefix(f"{error.where}: ")
        raise InputError(message, hint=error.hint, where=where) from error
    if taken.options:
        raise InputError(f"{value!r} is no number of GPUs of one kind", where=where,
                         hint=f"hand it to Slurm as it is: --sbatch-args={where}={value}")  # fmt: skip
    return [Override(key, read, where) for key, read in taken.layer.data.items()]


def _announce(views: Sequence[dict[str, Any]]) -> None:
    from remuda.control.reach import silence

    for view in views:
        pools = view["run"]["pools"] if view["run"] else ()
        where = f" on {view['backend']}" + (f": {' → '.join(pools)}" if pools else "")
        say(f"{view['name']} is accepted{where}")
    if not is_here(views[0]["backend"]) and (why := silence(views[0])):
        say(f"note: the host does not reach {views[0]['backend']}, and keeps trying: {why}")
        say("  where this command does: remuda host stop, then any command, starts a host with this environment")
    name = views[0]["name"]
    if len(views) == 1:
        say(f"  remuda status {name} · remuda logs {name} -f · remuda explain {name} · remuda stop {name}")
        echo(name)
        return
    say("  remuda list · remuda logs NAME -f · remuda explain NAME · remuda stop NAME")
    for view in views:
        echo(view["name"])


def stay(name: str, follow: Callable[[str], Iterable[Said]]) -> int:
    """Show what it writes until it ends; Ctrl-C leaves it running. Returns the exit code."""
    from remuda.control import runs

    try:
        for line in follow(name):
            echo(line.text, err=not line.is_output)
    except KeyboardInterrupt:
        say(f"{name} keeps running; stop it with: remuda stop {name}")
        return 130
    view = runs.ended([name])[0]
    say(f"{name} is {view['phase']}" + (f": {view['reason']}" if view["reason"] else ""))
    return 0 if view["phase"] == "DONE" else 1
