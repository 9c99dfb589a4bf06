"""Everything that can end at any time does: replicas, node programs, routers, hosts. Real processes, real signals."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PYTHON, Home, until


def ask(endpoint: str, *, key: str = "", timeout: float = 90.0) -> int:
    """One chat request; the status, 0 for no answer."""
    # No two prompts alike: a cache-aware router would send them all to one replica.
    said = [{"role": "user", "content": f"{time.monotonic_ns()} hi"}]
    body = json.dumps({"model": "herd-1", "messages": said}).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"{endpoint}/v1/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def members(home: Home, name: str = "herd") -> set[str]:
    router = home.view(name)["router"]
    return set(router["members"]) if router else set()


def one_living_allocation_per_task(home: Home, tasks: int) -> None:
    alive: dict[str, set[str]] = {}
    for token in home.tokens().values():
        workload, group, index, attempt, uid = token.rsplit(".", 4)
        alive.setdefault(f"{workload}/{group}/{index}", set()).add(f"{attempt}.{uid}")
    assert len(alive) == tasks, alive
    assert all(len(tokens) == 1 for tokens in alive.values()), alive


def engine_with(home: Home, code: str) -> list[str]:
    """The command of an engine that runs `code` first."""
    script = home.root / "lame.py"
    script.write_text(f"import os, sys, runpy\n{code}runpy.run_module('tests.fakes.engine', run_name='__main__')\n")
    return [PYTHON, str(script), "--host", "{host}", "--port", "{port}", "--model", "herd-1"]


class Load:
    """Requests from several threads until it is closed; counts what is not 200."""

    def __init__(self, endpoint: str, threads: int = 4) -> None:
        self.endpoint = endpoint
        self.answers: list[int] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and len(self.answers) < 20000:
            self.answers.append(ask(self.endpoint))

    def close(self) -> list[int]:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.answers


@pytest.fixture
def herd(home: Home) -> Home:
    home.run("up", "-c", str(home.swarm()))
    return home


@pytest.mark.parametrize("victim", ["engine", "node program"])
def test_a_replica_killed_under_load_costs_no_request(home: Home, victim: str) -> None:
    # What is begun again does not serve before it was seen away.
    away = home.root / "away"
    waits = f"import time\nwhile os.path.exists({str(away)!r}):\n    time.sleep(0.05)\n"
    home.run("up", "-c", str(home.swarm(command=engine_with(home, waits))))
    herd = home
    before = herd.task("herd", "replica/0")
    pid = before["pid"] if victim == "engine" else parent_of(before["pid"])
    load = Load(herd.view("herd")["endpoint"])
    until(lambda: len(load.answers) > 50, "load")
    away.touch()
    os.kill(pid, signal.SIGKILL)
    if victim == "engine":
        until(lambda: before["url"] not in members(herd), "out of the router")
    else:
        until(lambda: herd.task("herd", "replica/0")["attempt"] == 2, "replaced")
    away.unlink()
    until(lambda: len(members(herd)) == 2, "two members again")
    until(lambda: herd.view("herd")["phase"] == "RUNNING", "healed")
    answers = load.close()
    assert set(answers) == {200}, {code: answers.count(code) for code in set(answers)}
    after = herd.task("herd", "replica/0")
    if victim == "engine":
        assert (after["attempt"], after["restarts"]) == (1, 1)
    else:
        assert after["attempt"] == 2
        assert "was killed by signal 9" in herd.run("explain", "herd").stdout
    one_living_allocation_per_task(herd, 3)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.mark.parametrize("victim", ["router", "node program"])
def test_a_killed_router_comes_back_on_the_same_address_with_its_members(herd: Home, victim: str) -> None:
    endpoint = herd.view("herd")["endpoint"]
    pid = herd.task("herd", "router/0")["pid"]
    os.kill(pid if victim == "router" else parent_of(pid), signal.SIGKILL)
    until(lambda: herd.task("herd", "router/0")["pid"] not in (0, pid), "another router")
    until(lambda: ask(endpoint) == 200, "it answers again")
    until(lambda: herd.view("herd")["phase"] == "RUNNING" and len(members(herd)) == 2, "healed")
    assert herd.view("herd")["endpoint"] == endpoint
    one_living_allocation_per_task(herd, 3)


def test_a_deaf_replica_leaves_the_router_and_is_restarted(home: Home) -> None:
    home.run("up", "-c", str(home.swarm(watchdog={"http_timeout": 1, "unhealthy_restart_after": 1})))
    home.behave("deaf")
    until(lambda: members(home) == set(), "no members")
    assert home.task("herd", "replica/0")["phase"] != "ready"
    until(lambda: home.task("herd", "replica/0")["restarts"] >= 1, "restarted in place")
    home.behave("ok")
    # With limits as short as these, a moment on a busy machine takes one out again.
    until(lambda: home.view("herd")["phase"] == "RUNNING", "well again")
    until(lambda: ask(home.view("herd")["endpoint"]) == 200, "it answers again")


def test_a_replica_that_answers_500_is_unhealthy(home: Home) -> None:
    home.run("up", "-c", str(home.swarm(watchdog={"unhealthy_restart_after": 600})))
    home.behave("500")

    def is_refused() -> bool:
        task = home.task("herd", "replica/1")
        return bool(task["phase"] == "unhealthy" and task["http_status"] == 500)

    until(is_refused, "unhealthy, with its status")
    home.behave("ok")
    until(lambda: home.view("herd")["phase"] == "RUNNING", "well again")
    assert home.task("herd", "replica/1")["restarts"] == 0


def test_a_replica_that_dies_at_start_fails_with_its_reason(home: Home) -> None:
    watchdog = {"max_restarts": 1, "max_replacements": 2}
    path = home.swarm(engine_args=["--die-at-start", "3"], watchdog=watchdog, replicas=1)
    done = home.run("up", "-c", str(path), check=False)
    assert done.returncode == 1
    assert "error: herd is FAILED" in done.stderr
    explained = home.run("explain", "herd").stdout
    assert "given up after 2 failures" in explained
    assert "3" in explained
    home.run("down", "herd")
    assert not home.tokens()


def test_a_program_that_is_not_there_is_said_at_once(home: Home) -> None:
    path = home.swarm(command=["no-such-server", "--port", "{port}"], replicas=1, wait_endpoint_s=1000)
    done = home.run("up", "-c", str(path), check=False)
    assert done.returncode == 2
    assert "there is no program 'no-such-server' on this machine" in done.stderr
    assert "command" in done.stderr
    assert "herd" not in home.run("status", "--all").stdout, "nothing of it was recorded"


def test_a_replica_that_hangs_while_starting_is_noticed_before_the_window_ends(home: Home) -> None:
    hangs = ["python", "-c", "import time; time.sleep(600)"]
    watchdog = {"stall_after": 1, "readiness_timeout": 600, "max_restarts": 0, "max_replacements": 1}
    path = home.swarm(command=hangs, replicas=1, watchdog=watchdog, wait_endpoint_s=1000)
    done = home.run("up", "-c", str(path), check=False)
    assert done.returncode == 1
    assert "hang" in home.run("explain", "herd").stdout


def test_one_bad_replica_of_two_leaves_the_endpoint_serving(home: Home) -> None:
    command = engine_with(home, "if os.environ['REMUDA_TASK'] == 'replica/1':\n    sys.exit(9)\n")
    watchdog = {"max_restarts": 0, "max_replacements": 1}
    home.run("up", "-c", str(home.swarm(command=command, ready="first", watchdog=watchdog)))
    assert "DEGRADED" in home.run("status").stdout
    assert ask(home.view("herd")["endpoint"]) == 200
    until(lambda: home.task("herd", "replica/1")["phase"] == "failed", "given up")
    assert home.view("herd")["phase"] == "DEGRADED"
    assert "replica/1" in home.view("herd")["reason"]
    # The program beside it says the last word before it ends.
    until(lambda: not any(".replica.1." in token for token in home.tokens().values()), "nothing of it is left")
    one_living_allocation_per_task(home, 2)


def test_a_killed_host_changes_nothing_for_users_and_the_next_adopts(herd: Home) -> None:
    endpoint = herd.view("herd")["endpoint"]
    pids = {task["task"]: task["pid"] for task in herd.view("herd")["tasks"]}
    for _ in range(3):
        herd.kill_host()
        assert ask(endpoint) == 200
        herd.run("status", "herd")
        until(lambda: herd.view("herd")["phase"] == "RUNNING", "adopted")
    assert {task["task"]: task["pid"] for task in herd.view("herd")["tasks"]} == pids
    one_living_allocation_per_task(herd, 3)


def test_what_happened_while_no_host_ran_is_made_good(herd: Home) -> None:
    tasks = {task["task"]: task["pid"] for task in herd.view("herd")["tasks"]}
    herd.kill_host()
    os.kill(parent_of(tasks["replica/0"]), signal.SIGKILL)
    os.kill(tasks["replica/1"], signal.SIGKILL)
    herd.run("host", "start")

    # What was recorded last looks well, too: it is another thing once both have been begun again.
    def has_healed() -> bool:
        view = herd.view("herd")
        now = {task["task"]: task["pid"] for task in view["tasks"]}
        begun = all(now[name] not in (0, tasks[name]) for name in ("replica/0", "replica/1"))
        return bool(begun and view["phase"] == "RUNNING" and len(members(herd)) == 2)

    until(has_healed, "healed")
    assert ask(herd.view("herd")["endpoint"]) == 200
    one_living_allocation_per_task(herd, 3)


def test_two_hosts_at_once_are_one(herd: Home) -> None:
    pid = herd.host_pid()
    second = subprocess.run(
        [PYTHON, "-m", "remuda.host"], env=herd.env, capture_output=True, text=True, timeout=120, check=False
    )
    assert second.returncode == 4
    assert "a host of this state directory runs on this machine already" in second.stderr
    assert herd.host_pid() == pid


def test_many_commands_at_once_start_one_host(home: Home) -> None:
    started = [home.start("nodes", "--backend", "local") for _ in range(6)]
    for process in started:
        _, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
    fences = sqlite3.connect(home.paths.database, timeout=60)
    with closing(fences):
        assert fences.execute("select fence from lease").fetchone() == (1,)


def stands_still(pid: int) -> bool:
    """Whether all its threads are stopped: one that waits for the disk stops after that."""
    stats = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.rsplit(")", 1)[1].split()[0] == "T" for stat in stats)


def test_a_frozen_host_that_lost_its_lease_writes_nothing(herd: Home) -> None:
    """Another machine's host takes over while this one is stopped; when it goes on, it ends without a word."""
    pid = herd.host_pid()
    with closing(sqlite3.connect(herd.paths.database, timeout=1)) as database:

        def lost_while_frozen() -> bool:
            os.kill(pid, signal.SIGSTOP)
            until(lambda: stands_still(pid), "all of it stands still")
            try:
                database.execute("update lease set fence = fence + 1, owner = 'pid 1 on elsewhere', node = 'elsewhere'")
            except sqlite3.OperationalError:  # it was frozen while it held the database
                database.rollback()
                os.kill(pid, signal.SIGCONT)
                return False
            database.commit()
            return True

        until(lost_while_frozen, "frozen between two writes")
        events = database.execute("select count(*) from event").fetchone()
        os.kill(pid, signal.SIGCONT)
        until(lambda: not Path(f"/proc/{pid}").exists(), "it ended")
        assert database.execute("select count(*) from event").fetchone() == events
        database.execute("update lease set owner = '', expires_at = 0")
        database.commit()
    herd.run("status")
    until(lambda: herd.view("herd")["phase"] == "RUNNING", "taken over")
    one_living_allocation_per_task(herd, 3)


def test_a_host_that_nobody_can_reach_ends_and_the_next_takes_over(herd: Home) -> None:
    pid = herd.host_pid()
    herd.paths.socket.unlink()
    until(lambda: not Path(f"/proc/{pid}").exists() or "this host is unreachable" in herd.log(), "it ends")
    until(lambda: herd.run("status", "herd", check=False).returncode == 0, "another host")
    until(lambda: herd.view("herd")["phase"] == "RUNNING", "adopted")
    assert herd.host_pid() != pid
    one_living_allocation_per_task(herd, 3)


def test_a_port_that_is_taken(home: Home) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        fixed = home.swarm(backend={"type": "local", "endpoint": {"port": port}})
        done = home.run("up", "-c", str(fixed), check=False)
        assert done.returncode == 4
        assert f"error: port {port} on 127.0.0.1 is in use by another program" in done.stderr
        replica = home.swarm(port=port)
        home.run("up", "-c", str(replica))
        assert all(not task["url"].endswith(f":{port}") for task in home.view("herd")["tasks"])
    assert ask(home.view("herd")["endpoint"]) == 200


def test_two_swarms_have_two_addresses(home: Home) -> None:
    home.run("up", "-c", str(home.swarm("herd", replicas=1)))
    home.run("up", "-c", str(home.swarm("flock", replicas=1)))
    assert home.view("herd")["endpoint"] != home.view("flock")["endpoint"]
    assert {ask(home.view(name)["endpoint"]) for name in ("herd", "flock")} == {200}


def test_two_different_up_of_one_name_at_once(home: Home) -> None:
    home.run("host", "start")
    home.swarm()
    other = home.root / "other.yaml"
    document = json.loads((home.root / "herd.yaml").read_text())
    other.write_text(json.dumps({**document, "env": {"DIFFERENT": "1"}}))
    processes = [home.start("up", "-c", str(path)) for path in (home.root / "herd.yaml", other)]
    codes = sorted(process.wait(180) for process in processes)
    for process in processes:
        process.communicate()
    assert codes == [0, 4]
    one_living_allocation_per_task(home, 3)


EVIL = "$(touch /tmp/remuda-was-here) `touch /tmp/remuda-was-here`; 'q' \"d\" \\ é"


def test_nothing_is_executed_and_all_arrives_verbatim(home: Home) -> None:
    trace = Path("/tmp/remuda-was-here")
    trace.unlink(missing_ok=True)
    show = (
        "import os, sys, json, time; print(json.dumps([sys.argv[1:], os.environ['EVIL']]), flush=True); time.sleep(600)"
    )
    path = home.swarm(
        command=["python", "-c", show, "{model}", EVIL], model=EVIL, env={"EVIL": EVIL}, replicas=1, args=[EVIL],
        watchdog={"enabled": False}, router="none",
    )  # fmt: skip
    home.run("up", "-c", str(path))
    line = until(lambda: home.run("logs", "herd").stdout, "its line")
    assert json.loads(line) == [[EVIL, EVIL, EVIL], EVIL]
    named = home.run("up", "-c", str(path), "-n", EVIL, check=False)
    assert named.returncode == 2
    assert "cannot be a name" in named.stderr
    assert not trace.exists()


def test_the_api_key_is_nowhere_but_in_its_file(home: Home) -> None:
    key = "k-5f1e0c7d9a-secret"
    path = home.swarm(api_key={"env": "HERD_KEY"}, secret_env={"OTHER": {"env": "HERD_KEY"}})
    unset = home.run("up", "-c", str(path), check=False)
    assert unset.returncode == 2
    assert "HERD_KEY is not set" in unset.stderr
    env = {"HERD_KEY": key}
    shown = [
        home.run("up", "-c", str(path), "--dry-run", env=env).stdout,
        home.run("config", "show", "-c", str(path), env=env).stdout,
    ]
    home.run("up", "-c", str(path), env=env)
    endpoint = home.view("herd")["endpoint"]
    assert ask(endpoint) in (401, 403)
    assert ask(endpoint, key=key) == 200
    shown += [home.run(*words).stdout for words in (
        ("status", "herd", "--json"), ("swarm", "describe", "herd", "-o", "json"), ("explain", "herd", "--json"),
        ("logs", "herd"), ("logs", "herd", "--task", "router/0"), ("events", "herd", "--json"), ("host", "logs"),
    )]  # fmt: skip
    assert all(key not in text for text in shown)
    for pid in home.tokens():
        assert key.encode() not in content(Path(f"/proc/{pid}/cmdline"))
    for file in home.root.rglob("*"):
        if file.is_file() and "secrets" not in file.parts:
            assert key.encode() not in content(file), file
    for file in (home.paths.workload("herd") / "secrets").rglob("*"):
        assert file.stat().st_mode & 0o077 == 0


def content(file: Path) -> bytes:
    """What is in it; nothing when it has just gone, as reports and processes do."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_wrong_documents_are_one_clear_sentence(home: Home) -> None:
    cases: list[tuple[str, Any]] = [
        ("model: m\nreplcas: 2\n", "bad.yaml:2:1: unknown key `replcas`"),
        ("model: m\nreplicas: many\n", "bad.yaml:2:11"),
        ("model: [\n", "bad.yaml"),
    ]
    for text, sentence in cases:
        (home.root / "bad.yaml").write_text(text)
        done = home.run("up", "-c", "bad.yaml", check=False)
        assert done.returncode == 2
        assert sentence in done.stderr.replace("'", "`"), done.stderr
        assert "Traceback" not in done.stderr
    missing = home.run("up", "-c", "absent.yaml", check=False)
    assert missing.returncode == 2
    assert "absent.yaml" in missing.stderr
    assert not home.paths.socket.exists()


def test_a_replica_that_dies_under_load_again_and_again_costs_no_request(home: Home) -> None:
    watchdog = {"max_restarts": 50, "restart_backoff_initial": 0.05, "restart_backoff_max": 0.1}
    frail = "sys.argv += ['--die-after', '30'] if os.environ['REMUDA_TASK'] == 'replica/0' else []\n"
    home.run("up", "-c", str(home.swarm(command=engine_with(home, frail), replicas=3, watchdog=watchdog)))
    load = Load(home.view("herd")["endpoint"])
    until(lambda: home.task("herd", "replica/0")["restarts"] >= 3, "three restarts", 180)
    answers = load.close()
    assert set(answers) == {200}, {code: answers.count(code) for code in set(answers)}


def test_a_slow_start_is_waited_for(home: Home) -> None:
    home.run("up", "-c", str(home.swarm(engine_args=["--start-delay", "3"], replicas=1)))
    assert home.task("herd", "replica/0")["restarts"] == 0


def test_a_stream_that_hangs_does_not_take_the_swarm_with_it(herd: Home) -> None:
    endpoint = herd.view("herd")["endpoint"]
    herd.behave("hang")
    body = json.dumps({"model": "herd-1", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
    with closing(http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=90)) as connection:
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        stream = connection.getresponse()
        assert connection.sock is not None
        connection.sock.settimeout(5)
        with pytest.raises(TimeoutError):
            stream.read()
    herd.behave("ok")
    assert ask(endpoint) == 200
    until(lambda: herd.view("herd")["phase"] == "RUNNING", "all serve")
    assert [(task["attempt"], task["restarts"]) for task in herd.view("herd")["tasks"]] == [(1, 0)] * 3
