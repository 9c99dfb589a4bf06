"""What Slurm reads of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.fleet.conf import (
    FleetConf,
    NodeConf,
    cgroup_conf,
    differs,
    gpus_of,
    gres_conf,
    node_words,
    placed,
    slurm_conf,
    slurmd_timeout_s,
)

FLEET = FleetConf("fleet", "head", "10.0.0.1", 1000)


def node(**changes: Any) -> NodeConf:
    return NodeConf(**{"name": "n1", "address": "10.0.0.11", "cpus": 16, "memory": 64_000, **changes})


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_all_machines_read_the_same_and_each_its_own_directory() -> None:
    text = slurm_conf(FLEET)
    read = settings(placed(text, Path("/srv/a/remuda/fleet"), "/opt/lib/slurm-wlm", "/bin/scontrol"))
    assert {key: read[key] for key in ("ClusterName", "SlurmctldHost", "SlurmctldPort", "SlurmdPort", "SlurmUser")} == {
        "ClusterName": "fleet", "SlurmctldHost": "head(10.0.0.1)", "SlurmctldPort": "8090", "SlurmdPort": "8092",
        "SlurmUser": "1000",
    }  # fmt: skip
    assert read["AuthInfo"] == "socket=/srv/a/remuda/fleet/munge.sock"
    assert read["PluginDir"] == "/opt/lib/slurm-wlm"
    assert read["PartitionName"] == "fleet Nodes=ALL Default=YES State=UP MaxTime=INFINITE"
    assert "PluginDir" not in placed(text, Path("/x"), "", "/bin/scontrol")
    assert "@" not in placed(text, Path("/x"), "", "/bin/scontrol")


@pytest.mark.parametrize(("lease_s", "timeout_s"), [(180.0, 300), (60.0, 120), (10.0, 45), (0.0, 300)])
def test_slurm_gives_a_node_up_later_than_its_work_gives_itself_up(lease_s: float, timeout_s: int) -> None:
    assert slurmd_timeout_s(lease_s) == timeout_s
    conf = FleetConf("fleet", "head", "10.0.0.1", 1000, lease_s=lease_s)
    assert settings(slurm_conf(conf))["SlurmdTimeout"] == str(timeout_s)


@given(st.floats(min_value=1, max_value=86400))
def test_both_clocks_may_run_unevenly(lease_s: float) -> None:
    assert slurmd_timeout_s(lease_s) > 1.25 * lease_s + 29


@pytest.mark.parametrize(
    ("said", "gres", "words"),
    [
        ({}, "AutoDetect=off\n", "NodeAddr=10.0.0.11 CPUs=16 RealMemory=64000"),
        (
            {"gpus": "h100:2"},
            "AutoDetect=off\nName=gpu Type=h100 File=/dev/nvidia0\nName=gpu Type=h100 File=/dev/nvidia1\n",
            "NodeAddr=10.0.0.11 CPUs=16 RealMemory=64000 Gres=gpu:h100:2 Feature=h100",
        ),
        (
            {"gpus": "1", "devices": ("/dev/nvidia3",)},
            "AutoDetect=off\nName=gpu File=/dev/nvidia3\n",
            "NodeAddr=10.0.0.11 CPUs=16 RealMemory=64000 Gres=gpu:1",
        ),
    ],
)
def test_a_node_says_what_it_has(said: dict[str, Any], gres: str, words: str) -> None:
    assert gres_conf(node(**said)) == gres
    assert node_words(node(**said)) == words


def test_a_controller_knows_no_devices() -> None:
    assert gres_conf() == "AutoDetect=off\n"


@pytest.mark.parametrize(
    ("text", "found"), [("", ("", 0)), ("2", ("", 2)), ("h100:2", ("h100", 2)), ("A100-SXM4:8", ("a100-sxm4", 8))]
)
def test_gpus_are_a_type_and_a_number(text: str, found: tuple[str, int]) -> None:
    assert gpus_of(text) == found


@pytest.mark.parametrize("text", ["h100", "h100:0", "0", "h100:2:3", "h100:2,a100:1", "h 100:2", ":2", "h100:-1", "2 "])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError) as told:
        node(gpus=text)
    assert str(told.value) == f"{text!r} says no GPUs"
    assert told.value.hint == "TYPE:COUNT or COUNT, as in h100:2"


@pytest.mark.parametrize("name", ["n1", "gpu-box_1.lab", "A", "1"])
def test_a_node_may_be_called_that(name: str) -> None:
    assert node(name=name).name == name


@pytest.mark.parametrize("name", ["", "ALL", "default", "n[1-2]", "a,b", "a b", "-n", "n-", "x" * 64, "n=1", "\n"])
def test_a_node_may_not_be_called_that(name: str) -> None:
    with pytest.raises(InputError) as told:
        node(name=name)
    assert str(told.value) == f"{name!r} cannot be the name of a node"


def test_devices_are_as_many_as_gpus() -> None:
    with pytest.raises(InputError) as told:
        node(gpus="h100:2", devices=("/dev/nvidia0",))
    assert str(told.value) == "n1 has h100:2, and 1 devices are named"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, ""),
        ({"Gres": "(null)"}, "gpus"),
        ({"Gres": "gpu:h100:2(S:0-1)"}, ""),
        ({"Gres": "gpu:h100:1"}, "gpus"),
        ({"CPUTot": "8"}, "size"),
        ({"RealMemory": "63000"}, "size"),
        ({"NodeAddr": "10.0.0.12"}, "address"),
        ({"State": "DOWN*+DYNAMIC_NORM"}, "silent"),
        ({"State": "DOWN+DYNAMIC_NORM+NOT_RESPONDING"}, "silent"),
        ({"State": "DOWN+DYNAMIC_NORM"}, ""),
        ({"State": "IDLE*+DYNAMIC_NORM"}, ""),
        ({"NodeAddr": "10.0.0.12", "Gres": "(null)"}, "gpus"),
    ],
)
def test_a_record_of_slurm_is_compared_with_the_node(changes: dict[str, str], what: str) -> None:
    record = {"NodeName": "n1", "CPUTot": "16", "Gres": "gpu:h100:2", "NodeAddr": "10.0.0.11", "RealMemory": "64000"}
    line = " ".join(f"{key}={value}" for key, value in {**record, **changes}.items())
    assert differs(line + " OS=Linux 6.1 #1 SMP", node(gpus="h100:2")) == what


def test_a_node_without_a_gpu_is_as_it_says() -> None:
    assert differs("NodeName=n1 CPUTot=16 Gres=(null) NodeAddr=10.0.0.11 RealMemory=64000", node()) == ""


@pytest.mark.parametrize(
    ("version", "text"), [((22, 5, 8), "CgroupPlugin=cgroup/v1\n"), ((24, 11, 5), "CgroupPlugin=disabled\n")]
)
def test_nodes_need_no_cgroups(version: tuple[int, ...], text: str) -> None:
    assert cgroup_conf(version) == text
