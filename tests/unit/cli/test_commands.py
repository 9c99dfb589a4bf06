"""Every command is there, says what it does, and loads nothing for it."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.shell_completion import ShellComplete

import remuda
from remuda import __version__
from remuda.base import errors
from remuda.base.errors import RemudaError
from remuda.base.words import ELSEWHERE, SECTIONS
from remuda.cli import COMMANDS, cli, main
from remuda.cli.lazy import Headed, long_name
from remuda.client.http import HostClient

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]


def tree(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below, with their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from tree(command, *path, name)


TREE = dict(tree(cli))


def test_every_declared_command_is_there() -> None:
    assert {path[0] for path in TREE} == set(COMMANDS)
    assert {("job", "submit"), ("swarm", "list"), ("host", "stop"), ("db", "backup"), ("config", "show")} <= set(TREE)


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_help_of_every_command(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: remuda {' '.join(path)}")
    command = TREE[path]
    assert command.help, "it must say what it does"
    assert " ".join(command.help.split())[:40] in " ".join(text.split())
    assert main([*path, "-h"]) == 0


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["config", "show", "-c", "nowhere.yaml", "--json"], "InputError", 2),
        (["logs", "a", "--task", "x/0", "--replica", "1", "--json"], "UsageError", 2),
        (["nonsense", "--json"], "UsageError", 2),
    ],
)
def test_for_a_program_an_error_is_data(
    capsys: pytest.CaptureFixture[str], words: list[str], kind: str, code: int
) -> None:
    assert main(words) == code
    seen = capsys.readouterr()
    told = json.loads(seen.out)["error"]
    assert (told["type"], told["exit_code"], bool(told["message"]), seen.err) == (kind, code, True, "")
    assert main([*words[:-1], "--", "--json"]) == code
    assert capsys.readouterr().out == ""


def test_defaults_are_asked_for_once_and_only_what_exists_is_taken(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["slurm", "vlm", "sglang", "gpu", *[""] * 7, "n"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    assert main(["init", "defaults", "-o", str(tmp_path / "d.yaml")]) == 0
    seen = capsys.readouterr()
    assert "'vlm' is not one of 'vllm', 'sglang', 'llamacpp', 'transformers'" in seen.out + seen.err
    assert "Use slurm?" not in seen.out + seen.err
    assert "Use lepton?" in seen.out + seen.err
    text = (tmp_path / "d.yaml").read_text()
    assert "backend: slurm" in text
    assert "engine: sglang" in text
    assert "partition: gpu" in text


BUILT = "It is not built yet: row {} of docs/features.md#{}"
SUPERVISED, FLEETS = "supervised-runs", "fleets"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("tui", BUILT.format("S9", SUPERVISED)),
        ("sync", BUILT.format("S13", SUPERVISED)),
        ("--remote cluster tui", BUILT.format("S13", SUPERVISED)),
        ("run train.sh --no-sync", BUILT.format("S13", SUPERVISED)),
        ("sweep a.yaml", "there is no file a.yaml, and no such command"),
        ("up a.yaml --sweep", "No such option '--sweep'. It is: remuda apply --sweep"),
        ("model list", BUILT.format("G3", FLEETS)),
        ("data list", BUILT.format("G5", FLEETS)),
        ("queue tasks", BUILT.format("G6", FLEETS)),
        ("ModalSpawnExecutor", BUILT.format("K3", "gangs")),
        ("control pause --run-id train", "It is: remuda stop, restart, pause"),
        ("status --run-id train", "No such option '--run-id'. It is: the name alone, as in remuda status NAME"),
        ("setup", "No such command 'setup'. It is: remuda init cluster"),
        ("join 10.0.0.1:8090", "It is: remuda client connect"),
        ("train train.sh", "It is: remuda run"),
        ("ps", "No such command 'ps'. It is: remuda status"),
        ("submit", "No such command 'submit'. It is: remuda run"),
        ("resume", "No such command 'resume'. It is: remuda unpause"),
    ],
)
def test_words_of_other_tools_are_answered(capsys: pytest.CaptureFixture[str], typed: str, said: str) -> None:
    assert main(typed.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["login", "deploy", "update", "save", "restore", "run --remot", "status --secret"])
def test_what_is_near_nothing_gets_no_name(capsys: pytest.CaptureFixture[str], typed: str) -> None:
    assert main(typed.split()) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last in (f"Error: No such command {typed!r}.", f"Error: No such option {typed.rsplit(maxsplit=1)[-1]!r}.")


def test_names_in_python_are_answered() -> None:
    said = f"cannot import name 'ModalSpawnExecutor' from 'remuda'. {BUILT.format('K3', 'gangs')}"
    with pytest.raises(ImportError, match=re.escape(said)):
        from remuda import ModalSpawnExecutor  # noqa: F401
    assert not hasattr(remuda, "tui")


def test_words_of_other_tools_lead_to_what_is_there() -> None:
    page = (ROOT / "docs/features.md").read_text()
    rows = dict(re.findall(r"^\| ([A-Z]+[0-9]+) \|[^|]*\| ([^|]*) \|", page, re.MULTILINE))
    named = [here for here in ELSEWHERE.values() if here in rows]
    begun = {row for row in named if rows[row] != "not built yet"}
    assert begun == {"K3"}, "of which gangs on Modal are not"
    heads = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert {*SECTIONS.values()} <= {head.lower().replace(" ", "-") for head in heads}
    for here in {*ELSEWHERE.values()} - {*named}:
        line = here.partition("remuda ")[2].split(",")[0] or "version"
        path = tuple(word for word in line.split() if word.islower() and not word.startswith("-"))
        assert path in TREE or path[:1] == ("completion",), here
    assert {*ELSEWHERE} & {*COMMANDS} == set(), "our own words are no words of others"


def test_a_file_in_the_place_of_a_command_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swarm.yaml").touch()
    for word, said in (
        ("swarm.yaml", "error: swarm.yaml: the file is empty"),
        ("./swarm.yaml", "error: swarm.yaml: the file is empty"),
        ("train.sh", "there is no file train.sh, and no such command"),
        ("statuss", "Did you mean 'status'?"),
    ):
        assert main([word]) == 2
        assert said in capsys.readouterr().err


def test_the_document_of_up_is_named_once_or_is_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    assert main(["up"]) == 2
    assert "there is no swarm.yaml here" in capsys.readouterr().err
    assert main(["up", "a.yaml", "-c", "b.yaml"]) == 2
    assert "name the file once" in capsys.readouterr().err
    (tmp_path / "swarm.yaml").write_text("model: m\nengine: command\ncommand: [x]\nrouter: none\nreplicass: 1\n")
    for words in (["up"], ["up", "swarm.yaml"], ["up", "-c", "swarm.yaml"]):
        assert main([*words, "--dry-run"]) == 2
        assert "swarm.yaml:5:1: " in capsys.readouterr().err


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_every_option_says_what_it_does(path: tuple[str, ...]) -> None:
    options = [one for one in TREE[path].params if isinstance(one, click.Option)]
    assert [one.opts for one in options if not one.help] == []


def test_the_list_of_commands_agrees_with_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, (_, line) in COMMANDS.items():
        assert f"{name} {line}" in text


HEADED = {path: one for path, one in TREE.items() if isinstance(one, Headed) and one.headings}


def test_commands_of_many_options_have_headings() -> None:
    many = {path for path, one in TREE.items() if sum(isinstance(each, click.Option) for each in one.params) > 20}
    assert many == {*HEADED} == {("run",), ("job", "submit"), ("bench",), ("bench", "run"), ("bench", "search")}


@pytest.mark.parametrize("path", HEADED, ids=" ".join)
def test_each_option_stands_under_one_heading(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    command = HEADED[path]
    names = [name for text in command.headings.values() for name in text.split()]
    assert len(names) == len({*names})
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    assert {long_name(each) for each in options} - {*names} == set()
    known = {long_name(each) for one in HEADED.values() if one.headings is command.headings for each in one.params}
    assert {*names} <= known
    assert main([*path, "--help"]) == 0
    text = capsys.readouterr().out.partition("\n\nCommon")[2]
    heads = re.findall(r"^(\w+) options:$", text, re.MULTILINE)
    assert heads == [*[*command.headings][1:], "Other"]
    assert text.count("\n  -") == len(options) + 1
    assert text.partition("Other options:\n")[2].startswith("  -h, --help ")


def test_help_ends_with_where_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    *_, first, last = capsys.readouterr().out.split("\n\n")
    lines = first.splitlines()
    assert lines[0] == "  Start here:"
    for line in lines[1:]:
        assert line.split()[0] == "remuda"
        assert line.split()[1] in COMMANDS
    assert last == "  Documentation: README.md and docs/ of the repository.\n"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["-h"], []])
def test_they_load_nothing(words: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\nfrom remuda.cli import main\n"
        f"main({words!r})\nprint()\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "REMUDA_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded & {"pydantic", "sqlalchemy", "fastapi", "pyarrow", "aiohttp", "rich", "asyncio", "yaml"} == set()
    assert "click" in loaded
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("status ", ["chat", "train", "train-2"]),
        ("logs tr", ["train", "train-2"]),
        ("explain x", []),
        ("down train c", ["chat"]),
        ("stop ", ["chat", "train", "train-2"]),
        ("restart trai", ["train", "train-2"]),
        ("set ch", ["chat"]),
        ("scale ch", ["chat"]),
        ("swarm describe ch", ["chat"]),
    ],
)
def test_a_shell_knows_names_of_workloads(typed: str, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["chat", "train", "train-2"]
    monkeypatch.setattr(HostClient, "get", lambda *_, **__: [{"name": name} for name in names])
    *words, incomplete = typed.split(" ")
    completion = ShellComplete(cli, {}, "remuda", "_REMUDA_COMPLETE")
    assert [item.value for item in completion.get_completions(words, incomplete)] == shown


def test_a_shell_waits_for_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    assert ShellComplete(cli, {}, "remuda", "_REMUDA_COMPLETE").get_completions(["status"], "") == []
    assert not (tmp_path / "home").exists()


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"remuda {__version__}\n" * 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["upp"], "Did you mean 'up'?"),
        (["staus"], "Did you mean 'status'?"),
        (["complete"], "Did you mean 'completion'?"),
        (["swarm", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["zzzz"], "No such command 'zzzz'"),
        (["status", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
        (["up"], "name the file: there is no swarm.yaml here"),
        (["down"], "name what to stop, or give --all"),
        (["scale", "herd", "0"], "must be at least 1, not 0"),
        (["scale", "herd", "decode=none"], "must be a whole number, not 'none'"),
        (["scale", "herd", "decode=2", "decode=3"], "one for each group"),
        (["scale", "herd", "2", "decode=3"], "one for each group"),
        (["logs", "herd", "--task", "a/0", "--replica", "1"], "give one of --replica, --rank, --task and --role"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_what_was_mistyped_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


JOB = ["job", "submit", "--input", "a.jsonl", "--output", "b.jsonl"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--job-kwargs", "{temperature: 1}"], "must be JSON, not '{temperature: 1}'"),
        (["--job-kwargs", "[1]"], "must be a JSON object, not '[1]'"),
        (["--backend-read-kwargs", "7"], "must be a JSON object, not '7'"),
        (["--backend-write-kwargs", ""], "must be JSON, not ''"),
        (["--limit", "-1"], "must be at least 1, not -1"),
        (["--name", "a", "--endpoint", "http://b"], "give one of --name SWARM, --config FILE or --endpoint URL"),
        ([], "give one of --name SWARM, --config FILE or --endpoint URL"),
        (["--local", "--detach"], "give --local or --detach, not both"),
        (["--endpoint", "ftp://x"], "--endpoint: 'ftp://x' is not a URL"),
        (["--endpoint", "http://x", "--api-key-env", "NOBODY_SET_THIS"], "NOBODY_SET_THIS is not set"),
        (["--endpoint", "http://x", "--data-backend", "ray"], "'ray' is not available yet"),
    ],
)
def test_a_job_that_cannot_be_is_refused_before_anything_happens(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    assert main([*JOB, *words]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


CLASSES = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RemudaError)),
    key=lambda kind: kind.__name__,
)


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """`remuda version` raises what is put in here."""
    wanted: list[BaseException] = []

    @click.command()
    def version() -> None:
        raise wanted[0]

    monkeypatch.setattr("remuda.cli.completion.version", version)
    return wanted


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
def test_the_exit_code_of_each_error(
    kind: type[RemudaError], raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(kind("no port 7", hint="choose another"))
    assert main(["version"]) == kind.exit_code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: no port 7\n  choose another\n")


def test_exit_codes_are_told_apart() -> None:
    codes = {kind.exit_code for kind in CLASSES}
    assert codes == {1, 2, 3, 4, 5, 6, 7, 8, 9, 130}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort(), EOFError()])
def test_ctrl_c(error: BaseException, raising: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    raising.append(error)
    assert main(["version"]) == 130
    assert capsys.readouterr().err.endswith("stopped\n")


def test_a_bug_is_not_hidden(raising: list[BaseException]) -> None:
    raising.append(ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        main(["version"])


def typed() -> list[str]:
    """What pages of help give as examples."""
    pages = [command.epilog or "" for command in TREE.values()]
    return [line.strip() for page in pages for line in page.splitlines() if line.startswith("  remuda ")]


@pytest.mark.parametrize("line", typed())
def test_examples_of_help_can_be_typed(line: str) -> None:
    command: click.Command = cli
    context, words = click.Context(cli), shlex.split(line)[1:]
    while isinstance(command, click.Group) and not (command.invoke_without_command and words[0].startswith("-")):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, parent=context)
    command.make_parser(context).parse_args(words)


def test_there_are_examples_where_beginners_look() -> None:
    for name in ("up", "serve", "run", "job submit", "logs", "status", "explain"):
        assert any(line.startswith(f"remuda {name}") for line in typed()), name


NO_FILE = "cannot be read: it is a pipe, a socket or a device"


@pytest.mark.parametrize("words", [["up", "-c"], ["config", "check"], ["run", "--backend", "local"]], ids=" ".join)
@pytest.mark.parametrize("what", ["pipe", "/dev/zero"])
def test_what_never_ends_is_not_read(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    path = what
    if what == "pipe":
        path = str(tmp_path / "x.sh")
        os.mkfifo(path)
    assert main([*words, path]) == 2
    assert f"{path}: {NO_FILE}" in capsys.readouterr().err


def test_an_interpreter_is_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "python", "train.py"]) == 2
    assert capsys.readouterr().err == (
        "error: python: is a program, not a script\n  `run` takes a script with a `#!` line: remuda run train.py\n"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EROFS, "Read-only file system", "demo-output"), "demo-output: Read-only file system"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "a" * 4096), f"{'a' * 79}…: File name too long"),
    ],
)
def test_a_disk_that_refuses_is_no_bug(
    error: OSError, said: str, raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(error)
    assert main(["version"]) == 1
    assert capsys.readouterr().err == f"error: {said}\n"


def test_other_errors_of_the_system_are_bugs(raising: list[BaseException]) -> None:
    raising.append(OSError(errno.EBADF, "Bad file descriptor"))
    with pytest.raises(OSError, match="Bad file"):
        main(["version"])


@pytest.mark.parametrize("words", [["status"], ["job", "status"], ["job", "logs"], ["explain"]], ids=" ".join)
def test_a_name_that_is_too_long_is_a_sentence(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("remuda.client.http.connect", lambda **_: HostClient())
    assert main([*words, "a" * 4096]) == 3
    assert len(capsys.readouterr().err) < 200
