"""Where nodes find the host."""

from __future__ import annotations

import pytest

from remuda.host import reporting


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ("SlurmctldHost[0]        = head(10.1.2.3)\nSlurmctldHost[1]        = other\n", "10.1.2.3"),
        ("ClusterName = c\nSlurmctldHost[0]        = ctl-1.cluster.local\n", "ctl-1.cluster.local"),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller\n", ""),
        ("", ""),
    ],
)
def test_the_controller_is_read_from_slurms_own_words(config: str, address: str) -> None:
    assert reporting.controller_in(config) == address


def test_the_setting_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_REPORT_HOST", "127.0.0.7")
    assert reporting.report_host() == "127.0.0.7"


def test_without_a_cluster_nothing_is_opened_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_REPORT_HOST", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert reporting.report_host() == "127.0.0.1"


def test_in_a_pod_it_is_the_address_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_REPORT_HOST", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.9")
    assert reporting.report_host() == "127.0.0.1"
    monkeypatch.setattr(reporting, "towards", lambda host: f"towards {host}")
    assert reporting.report_host() == "towards 127.0.0.9"


def test_a_controller_that_does_not_answer_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_REPORT_HOST", raising=False)
    monkeypatch.setattr("shutil.which", lambda _, path: "/bin/false")
    monkeypatch.setattr(reporting, "site_controller", lambda _: "")
    assert reporting.report_host()
    monkeypatch.setattr(reporting, "site_controller", lambda _: "127.0.0.1")
    assert reporting.report_host() == "127.0.0.1"
