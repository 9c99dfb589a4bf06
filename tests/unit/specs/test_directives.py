"""What the head of a script means: `#REMUDA`, `#SHEPHERD` and `#SBATCH` lines."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.specs.reading.directives import read_directives
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build
from remuda.specs.reading.resolve import Override
from remuda.specs.reading.sbatch import slurm_seconds
from remuda.specs.reading.sbatch_options import options_of
from remuda.specs.run import FLAGS, SWITCHES, RunSpec

SEED = [
    "gpus", "min-vram", "max-vram", "prefer", "mode", "partitions", "max-retries", "keep-alive", "heartbeat-interval",
        "heartbeat-grace", "backoff-base", "backoff-max", "blacklist-ttl", "no-blacklist"]  # fmt: skip


def script(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *lines, "", "python train.py", ""])


def spec_of(text: str, *overrides: Override, document: str = "") -> RunSpec:
    head = read_directives(text, "train.sh")
    file = parse(document, "run.yaml") if document else None
    said = [Override("script", "train.sh", "SCRIPT"), *overrides]
    loaded = build(file, said, expect="run", script=[head.sbatch, head.own])
    assert isinstance(loaded.spec, RunSpec)
    return loaded.spec


def error_of(text: str) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        spec_of(text)
    return str(caught.value), caught.value.hint


def test_the_example_of_the_seed() -> None:
    spec = spec_of(script("#SHEPHERD --gpus 4 --min-vram 40"))
    assert (spec.gpus, spec.min_vram) == (4, 40.0)


@pytest.mark.parametrize("flag", SEED)
def test_every_directive_of_the_seed_is_a_flag(flag: str) -> None:
    assert flag in FLAGS


def test_several_lines_quotes_and_equals() -> None:
    text = script("# a comment", "#REMUDA --name='my-run' --gpus=2  # two", "#REMUDA --env A='b c' --env D=e",
                  "# REMUDA --hedge --no-requeue")  # fmt: skip
    spec = spec_of(text)
    assert (spec.name, spec.gpus, spec.env, spec.hedge, spec.requeue) == (
        "my-run",
        2,
        {"A": "b c", "D": "e"},
        True,
        False,
    )


def test_directives_end_with_the_first_command() -> None:
    text = "#!/bin/bash\n\n#REMUDA --gpus 1\necho\n#REMUDA --gpus 2\n#SBATCH --time=1\n"
    head = read_directives(text, "train.sh")
    assert head.own.data == {"gpus": "1"}
    assert head.notes == (
        "train.sh:5: this #REMUDA line comes after the first command, so it is not read",
        "train.sh:6: this #SBATCH line comes after the first command, so it is not read",
    )


def test_who_wins() -> None:
    text = script("#SBATCH --time=10 --gres=gpu:a100:1", "#REMUDA --gpus 2 --prefer min --backoff-base 5")
    flag = Override("prefer", "max", "--prefer")
    spec = spec_of(text, flag, document="kind: run\nscript: train.sh\nbackoff_base: 7\n")
    assert (spec.time_limit, spec.gpus, spec.gpu_type, spec.prefer, spec.backoff_base) == (600, 2, "a100", "max", 7)


def test_origins() -> None:
    head = read_directives(script("#SBATCH -t 1:00:00", "#REMUDA --gpus 2"), "train.sh")
    loaded = build(None, [Override("script", "train.sh", "SCRIPT")], expect="run", script=[head.sbatch, head.own])
    shown = {item.path: item.origin for item in loaded.show() if item.origin != "built-in"}
    assert shown == {"script": "SCRIPT", "gpus": "train.sh:3", "time_limit": "train.sh:2"}


@pytest.mark.parametrize(
    ("line", "sentence", "hint"),
    [
        ("#REMUDA --gpu 4", "train.sh:2: unknown directive '--gpu'", "did you mean '--gpus'?"),
        ("#REMUDA --xyzzy", "train.sh:2: unknown directive '--xyzzy'", "see `remuda run --help`"),
        ("#REMUDA --gpus", "train.sh:2: '--gpus' needs a value", "write --gpus=VALUE"),
        ("#REMUDA --gpus --hedge", "train.sh:2: '--gpus' needs a value", "write --gpus=VALUE"),
        ("#REMUDA gpus 4", "train.sh:2: 'gpus' is not a directive", "directives begin with --, e.g. --gpus 4"),
        ("#REMUDA --name 'x", "train.sh:2: cannot be split into words: no closing quotation", "close the quotation"),
        ("#REMUDA --gpus four", "train.sh:2: `gpus` must be a whole number, not four", ""),
        ("#REMUDA --mode twice", "train.sh:2: `mode` must be one of run_once, indefinite, not twice", ""),
        ("#REMUDA --min-vram 40", "train.sh:2: `min_vram` says which GPUs, but `gpus` is 0", "add --gpus 1"),
        ("#REMUDA --gpus 1 --min-vram lots", "train.sh:2: `min_vram` must be a number of GB, not 'lots'",
         "write 40 or 40GB"),
        ("#REMUDA --signal NOPE@3", "train.sh:2: `signal` must be a signal and seconds, not 'NOPE@3'",
         "write TERM@90 or USR1@300"),
        ("#REMUDA --keep-alive 60",
         "train.sh:2: `keep_alive` is for `mode: indefinite`; this run ends when its script does",
         "add --mode indefinite, or leave it out"),
        ("#SBATCH --array=3-1", "train.sh:2: `array` has '3-1', which ends before it begins",
         "write 1-50, 1,3,7 or 0-30:3, with %4 behind it for four at a time"),
        ("#REMUDA --array 1-9%3 --mode indefinite",
         "train.sh:2: `array` lets some of its tasks run at a time, and with `mode: indefinite` none makes room",
         "leave out what follows %"),
        ("#SBATCH hetjob", "train.sh:2: heterogeneous jobs cannot be supervised", "leave out what follows `hetjob`"),
        ("#SBATCH --time=soon", "train.sh:2: 'soon' is not a time as Slurm writes it",
         "write 90 (minutes), 1:30:00 or 2-12"),
        ("#SBATCH -p", "train.sh:2: '-p' needs a value", ""),
    ],
)  # fmt: skip
def test_sentences(line: str, sentence: str, hint: str) -> None:
    assert error_of(script(line)) == (sentence, hint)


def test_all_problems_are_told_at_once() -> None:
    said, _ = error_of(script("#REMUDA --gpu 1", "#REMUDA --nam x", "#SBATCH --wrap=true"))
    assert said.splitlines() == [
        "train.sh:2: unknown directive '--gpu'",
        "train.sh:3: unknown directive '--nam' (did you mean '--name'?)",
        "train.sh:4: --wrap takes the place of the script (leave it out)",
    ]


def test_sbatch_lines_fill_gaps_and_pass_on_the_rest() -> None:
    head = read_directives(
        script("#SBATCH -J 'My Job' -N2 -c 8 --mem=4000 -p a100,h100 -A acc -q high", "#SBATCH --gpus=8 --ntasks 2",
               "#SBATCH --exclusive --mail-user me@x.org --mail-type=END -o out-%j.txt --export=ALL -H"), "t.sh"
    )  # fmt: skip
    assert head.sbatch.data == {
        "name": "my-job", "nodes": "2", "cpus_per_task": "8", "mem": "4000M", "partitions": "a100,h100",
        "account": "acc", "qos": "high", "gpus": 4, "mail_user": "me@x.org", "output": "out-%j.txt",
    }  # fmt: skip
    assert head.options == ("--ntasks=2", "--exclusive", "--mail-type=END")
    assert head.notes == (
        "t.sh:4: --export is not kept: nothing but what `--env` names and search paths reaches the script",
        "t.sh:4: --hold is not kept: the run is released as soon as it is recorded",
    )


def test_gpus_of_all_nodes_that_cannot_be_spread() -> None:
    with pytest.raises(InputError, match=r"^t.sh:2: 7 GPUs cannot be spread evenly over 2 nodes$"):
        read_directives(script("#SBATCH --gpus=7 --nodes=2"), "t.sh")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("1:00:00", 3600), ("2-12", 216000), ("2-12:30", 217800), ("2-12:30:01", 217801),
     ("UNLIMITED", 0)],
)  # fmt: skip
def test_times_of_slurm(text: str, seconds: float) -> None:
    assert slurm_seconds(text) == seconds


def test_short_options_in_every_form() -> None:
    assert options_of(["-N2", "-N", "3", "-p=x", "--time", "5", "-H"]) == [
        ("nodes", "2"), ("nodes", "3"), ("partition", "x"), ("time", "5"), ("hold", None),
    ]  # fmt: skip


VALUES = {
    "name": st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), "gpus": st.integers(0, 64),
    "max_retries": st.integers(0, 99), "backoff_base": st.integers(0, 300),
    "constraint": st.text("ab &|[]'\"$()`", max_size=9),
    "workdir": st.text("ab /$(){}'\"\\#", min_size=1, max_size=9),
}  # fmt: skip


@settings(deadline=None)
@given(
    values=st.fixed_dictionaries({}, optional=VALUES),
    equals=st.booleans(),
    switches=st.sets(st.sampled_from(sorted(SWITCHES))),
)
def test_what_is_written_is_read(values: dict[str, object], equals: bool, switches: set[str]) -> None:
    words = [f"--{name.replace('_', '-')}" for name in sorted(switches)]
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        # A value that looks like a flag needs `=`, as everywhere.
        words += [f"{flag}={value}"] if equals or str(value).startswith("--") else [flag, str(value)]
    head = read_directives(script("#REMUDA " + shlex.join(words)), "t.sh")
    assert {name: str(value) for name, value in head.own.data.items()} == {
        **{name: str(value) for name, value in values.items()}, **dict.fromkeys(switches, "True"),
    }  # fmt: skip


@settings(deadline=None)
@given(text=st.text(max_size=300) | st.text("#REMUDASBTCH -=\"'\nx", max_size=300))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    where = "t.sh:1"
    try:
        read_directives(text, "t.sh")
    except InputError as error:
        where = error.where
    assert where.startswith("t.sh:")
