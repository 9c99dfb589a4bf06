"""sbatch's words are read as sbatch reads them: abbreviations, letters in one word, values in the word or after it."""

from __future__ import annotations

import getopt
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.specs.reading.directives import read_directives
from remuda.specs.reading.sbatch_options import BUILT_IN, SHORT, Takes, full_name, learn, options_of

HELP = (Path(__file__).parents[2] / "cases/slurm/sbatch-help-22.05.txt").read_text()


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["--arr=0-3"], [("array", "0-3")]),
        (["--wra", "true"], [("wrap", "true")]),
        (["-B", "2:8:1"], [("extra-node-info", "2:8:1")]),
        (["-B2:8:1"], [("extra-node-info", "2:8:1")]),
        (["-Hp", "cpu"], [("hold", None), ("partition", "cpu")]),
        (["-Hpcpu", "-vv"], [("hold", None), ("partition", "cpu"), ("verbose", None), ("verbose", None)]),
        (["--stepmgr"], [("stepmgr", None)]),
        (["--oom-kill-step", "--external"], [("oom-kill-step", None), ("external", None)]),
        (["--resv-ports", "--resv-ports=4"], [("resv-ports", None), ("resv-ports", "4")]),
        (["--exclusive", "--exclusive=user"], [("exclusive", None), ("exclusive", "user")]),
        (["--nice", "-t5"], [("nice", None), ("time", "5")]),
        (["--newer"], [("newer", None)]),
        (["--newer", "--hold"], [("newer", None), ("hold", None)]),
        (["--newer", "value", "--hold"], [("newer", "value"), ("hold", None)]),
        (["--gpus", "2"], [("gpus", "2")]),
    ],
)
def test_words(words: list[str], read: list[tuple[str, str | None]]) -> None:
    assert options_of(words) == read


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--time"], "t: '--time' needs a value"),
        (["-t"], "t: '-t' needs a value"),
        (["-Ht"], "t: '-Ht' needs a value"),
        (["-Z"], "t: '-Z' is not an option of sbatch: it has no -Z"),
        (["--tim"], "t: '--tim' could be any of --time, --time-min"),
        (["cpu"], "t: 'cpu' is not an option of sbatch"),
    ],
)  # fmt: skip
def test_words_that_sbatch_refuses(words: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        options_of(words, "t")
    assert str(refused.value) == sentence


def test_every_option_of_a_real_sbatch_is_in_the_table_with_its_value() -> None:
    listed = re.findall(r"^ {2}(?:-\w,? +| {4})--([a-z][a-z-]+)(\[?=)?", HELP, re.MULTILINE)
    assert len(listed) > 80
    # What its help says otherwise than it reads it, by trying.
    wrong = {"container": Takes.VALUE, "wrap": Takes.VALUE, "export": Takes.VALUE, "get-user-env": Takes.MAYBE,
             "no-kill": Takes.MAYBE}  # fmt: skip
    for name, value in listed:
        said = {"": Takes.NOTHING, "=": Takes.VALUE, "[=": Takes.MAYBE}[value]
        assert BUILT_IN[name] is wrong.get(name, said), name
    letters = dict(re.findall(r"^\s+-(\w),?\s+--([a-z][a-z-]+)", HELP, re.MULTILINE))
    assert {letter: SHORT[letter] for letter in letters} == letters


def test_a_newer_sbatch_teaches_what_it_has_besides() -> None:
    table = learn(
        f"{HELP}\n      --warp=factor          go faster\n      --shields              up\n      --beam[=where]   x\n"
    )
    assert {name: takes for name, takes in table.items() if name not in BUILT_IN} == {
        "warp": Takes.VALUE, "shields": Takes.NOTHING, "beam": Takes.MAYBE,
    }  # fmt: skip
    assert options_of(["--war", "-9", "--shi"], table=table) == [("warp", "-9"), ("shields", None)]
    head = read_directives("#!/bin/sh\n#SBATCH --war -9 --shi\n", "t.sh", table)
    assert head.options == ("--warp=-9", "--shields")


@given(st.sampled_from(sorted(BUILT_IN)), st.integers(1, 12))
def test_abbreviations_are_those_of_getopt(name: str, length: int) -> None:
    """The library that sbatch reads its words with has a twin in Python."""
    said = name[:length]
    longs = [f"{one}=" if takes is Takes.VALUE else one for one, takes in BUILT_IN.items()]
    words = [f"--{said}=x"] if BUILT_IN[name] is Takes.VALUE else [f"--{said}"]
    try:
        ((found, _),), _ = getopt.getopt(words, "", longs)
    except getopt.GetoptError as error:
        if "not a unique prefix" in error.msg:
            with pytest.raises(InputError, match="could be any of"):
                full_name(said)
        return
    assert found == f"--{full_name(said)}"


@pytest.mark.parametrize("line", ["--wra=true", "--clus=other", "--tes", "--uid=5", "--external"])
def test_what_cannot_be_supervised_is_refused_however_it_is_written(line: str) -> None:
    with pytest.raises(InputError) as refused:
        read_directives(f"#!/bin/sh\n#SBATCH {line}\n", "t.sh")
    assert refused.value.where == "t.sh:2"


def test_gpus_are_a_field_and_other_resources_are_handed_on() -> None:
    head = read_directives("#!/bin/sh\n#SBATCH --gres=gpu:a100:2,nvme:1\n", "t.sh")
    assert {name: str(value) for name, value in head.sbatch.data.items()} == {"gpus": "2", "gpu_type": "a100"}
    assert head.options == ("--gres=nvme:1",)
