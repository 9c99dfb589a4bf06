"""What is drawn from the code, pages of `docs/` and options of commands: `python -m tests.house.pages` writes it."""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tests.house import benchoptions, joboptions, runoptions

from remuda.base.settings import KNOWN
from remuda.cli import cli
from remuda.specs.recipe import cluster
from remuda.specs.recipe.words import VERSION_1, VERSION_2, Fate
from remuda.supervise import model
from remuda.supervise.model import FINAL, LIVE, MOVES, RUNNING, Event, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from enum import StrEnum

    from remuda.specs.recipe.words import Word

ROOT = Path(__file__).parents[2]
STATES_INTRO = """\
A task is always in one phase. Facts (what the backend and the program beside the task say) and decisions are events.
The table below has every move that is allowed; a move that it lacks is a bug that says so. `remuda events NAME` prints
the moves of a workload with their reasons.
"""
STATES_SUMMARY = """
The phase of a whole workload is a summary, the same in every command: PENDING, WAITING (for the next attempt of all
its tasks), STARTING, RUNNING, DEGRADED (it serves with less than it should), FAILED (what is left of it is ended),
STOPPING, DOWN; DONE for what reached its goal, PAUSED when nothing runs and nothing is to be started, and STOPPED for
what a person ended with the scheduler's own tools. A run is also UNHEALTHY (no heartbeat) or RESTARTING.
"""
CLI_INTRO = """\
Every command takes `-h` and `--help`. Results go to standard output, what is said about them to standard error. Tables
are drawn on a terminal and plain when piped; `--json` prints data for programs; `NO_COLOR` is obeyed.
[Exit codes](exit-codes.md) mean the same for all commands. `eval "$(remuda completion bash)"` completes names of
commands, options and workloads, with `zsh` and `fish`, too.

[Settings](configuration.md#environment) from the environment: {settings}.
"""
RECIPES_INTRO = """\
Recipes of srtctl are read as they are, of either version and without a step that rewrites them. `remuda resolve` prints
what a recipe says here, with the line of each value:

    remuda resolve recipe.yaml
    remuda resolve 'recipe.yaml:override_tp*' --set resources.decode_nodes=4

A key that no version knows is an error with file, line, column and the nearest known key; one that is known and not
used is named in a note with the reason. `base`, `override_NAME` and `zip_override_NAME` are read; without a selector
all recipes of a file but its base are meant. What can be [brought up](deployments.md) yet is less than what is read.
"""
RECIPES_CLUSTER = """\
Found by SRTSLURM_CONFIG, else as `srtslurm.yaml` in the current folder or two above, else as `cluster.yaml` in the
state directory; [`remuda init cluster`](deployments.md#the-file-about-the-cluster) writes one. What a recipe says
counts more. All layouts are read; a key that none of them has is an error.
"""
HOW = "<!-- Written by `python -m tests.house.pages` from {source}. -->"


#: As the command line has them: click keeps the first help option that it makes of a command.
NAMES = ["-h", "--help"]


def texts_of(kind: type[StrEnum]) -> dict[str, str]:
    """The docstring under each member of an enum of `supervise.model`, by the member's value; empty without one."""
    body = next(
        node.body
        for node in ast.parse(inspect.getsource(model)).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    texts = dict.fromkeys(map(str, kind), "")
    for before, node in pairwise(body):
        if isinstance(before, ast.Assign) and isinstance(node, ast.Expr) and isinstance(before.targets[0], ast.Name):
            assert isinstance(node.value, ast.Constant)
            texts[str(kind[before.targets[0].id])] = " ".join(str(node.value.value).split())
    return texts


def render_states() -> str:
    """`docs/states.md`: phases, diagram and table of moves."""
    return "\n".join([
        "# States of a task\n",
        HOW.format(source="`supervise/model.py`") + "\n",
        STATES_INTRO,
        "## Phases\n",
        "| phase | meaning | an allocation may exist | it runs | it is over |",
        "|---|---|---|---|---|",
        *(_phase(phase, text) for phase, text in texts_of(Phase).items()),
        STATES_SUMMARY,
        "## Diagram\n",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {Phase.WAITING}",
        *(f"    {before} --> {after}: {', '.join(events)}" for (before, after), events in _arrows().items()),
        *(f"    {phase} --> [*]" for phase in Phase if phase in FINAL),
        "```\n",
        "## Moves\n",
        "| in phase | on event | to phase |",
        "|---|---|---|",
        *(f"| {before} | {event} | {after} |" for (before, event), after in sorted(MOVES.items(), key=_by_declaration)),
        "\n## Events that need a word\n",
        *(f"- **{event}**: {text}" for event, text in texts_of(Event).items() if text),
        "",
    ])  # fmt: skip


def _by_declaration(move: tuple[tuple[Phase, Event], Phase]) -> tuple[int, int]:
    return list(Phase).index(move[0][0]), list(Event).index(move[0][1])


def _phase(name: str, text: str) -> str:
    marks = ["yes" if Phase(name) in group else "" for group in (LIVE, RUNNING, FINAL)]
    return f"| {name} | {text} | {' | '.join(marks)} |"


def _arrows() -> dict[tuple[Phase, Phase], list[Event]]:
    arrows: dict[tuple[Phase, Phase], list[Event]] = {}
    for (before, event), after in sorted(MOVES.items(), key=_by_declaration):
        arrows.setdefault((before, after), []).append(event)
    return arrows


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below `command` that is not hidden, with its words, groups before their members."""
    if path:
        yield path, command
    if isinstance(command, click.Group):
        with click.Context(command, help_option_names=NAMES) as context:
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                if not below.hidden:
                    yield from commands(below, (*path, name))


def render_cli() -> str:
    """`docs/cli.md`: every command with its arguments and options."""
    parts = [
        "# Command line\n",
        HOW.format(source="the commands themselves") + "\n",
        CLI_INTRO.format(settings=", ".join(f"`REMUDA_{name}`" for name in KNOWN)),
    ]  # fmt: skip
    for path, command in commands(cli):
        parts += _command(path, command)
    return "\n".join(parts)


def _command(path: tuple[str, ...], command: click.Command) -> list[str]:
    words = " ".join(path)
    with click.Context(command, info_name=f"remuda {words}", help_option_names=NAMES) as context:
        usage = " ".join(command.collect_usage_pieces(context))
    text = inspect.cleandoc(command.help or "")
    parts = [f"{'#' * (1 + len(path))} remuda {words}\n", f"`remuda {words} {usage}`\n", f"{text}\n"]
    rows = [_option(param) for param in command.params if isinstance(param, click.Option) and not param.hidden]
    if rows:
        parts += ["| option | default | |", "|---|---|---|", *rows, ""]
    return parts


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if not option.is_flag:
        names += f" {_cell(option.make_metavar(click.Context(cli, help_option_names=NAMES)))}"
    default = option.default
    shown = not callable(default) and isinstance(default, (str, int, float)) and not isinstance(default, bool)
    value = f"`{default}`" if shown and default != "" else ""
    return f"| {names} | {value} | {_cell(option.help or '')} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def render_recipes() -> str:
    """`docs/srtctl.md`: every key of their recipes and of their cluster file."""
    parts = ["# Coming from srtctl\n", HOW.format(source="`specs/recipe`") + "\n", RECIPES_INTRO]
    for title, words in (("Recipes without `schema`, and those before them", VERSION_1),
                         ("Recipes that say `schema: 2`", VERSION_2)):  # fmt: skip
        parts += [f"## {title}\n", "| key | here | |", "|---|---|---|"]
        parts += [f"| `{'.'.join(word.path)}` | {_place(word)} | {_cell(word.why)} |" for word in words]
        parts += [""]
    parts += ["## The cluster file\n", RECIPES_CLUSTER, "| key | here | |", "|---|---|---|"]
    parts += [f"| `{key}` | `{'.'.join(map(str, to))}` | |" for key, to in cluster.USED.items()]
    parts += [f"| `cluster.{key}` | `{'.'.join(map(str, to))}` | |" for key, to in cluster.NESTED.items()]
    parts += ["| `model_paths` | names for `model.path` | |", "| `containers` | names for `container` | |"]
    parts += [f"| `{key}` | ignored | {_cell(why)} |" for key, why in cluster.IGNORED.items()]
    return "\n".join([*parts, ""])


def _place(word: Word) -> str:
    return f"`{'.'.join(word.to)}`" if word.fate is Fate.USED else str(word.fate)


PAGES: dict[str, Callable[[], str]] = {
    "../src/remuda/cli/runs/run_options.json": runoptions.drawn,  # first: the command line is made of them
    "../src/remuda/cli/bench/bench_options.json": benchoptions.drawn,
    "../src/remuda/cli/bench/accuracy_options.json": benchoptions.drawn_for_questions,
    "../src/remuda/cli/jobs/job_options.json": joboptions.drawn,
    "states.md": render_states, "cli.md": render_cli, "srtctl.md": render_recipes,
}  # fmt: skip


def main() -> None:
    """Write all of them."""
    for name, render in PAGES.items():
        (ROOT / "docs" / name).write_text(render())


if __name__ == "__main__":
    main()
