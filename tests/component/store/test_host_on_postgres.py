"""A whole swarm with its state in PostgreSQL: up, a killed host, adopted, down."""

from __future__ import annotations

from tests.conftest import Home, until


def test_a_swarm_with_its_state_in_postgresql(home: Home, postgres_url: str) -> None:
    home.env["REMUDA_DATABASE_URL"] = postgres_url
    home.run("up", "-c", str(home.swarm()))
    assert not home.paths.database.exists()
    assert "postgresql" in home.run("db", "status").stdout
    home.kill_host()
    home.run("status", "herd")
    until(lambda: home.view("herd")["phase"] == "RUNNING", "adopted")
    backup = home.run("db", "backup", str(home.root / "copy"), check=False)
    assert backup.returncode == 2
    assert "pg_dump" in backup.stderr
    home.run("down", "herd")
    assert not home.tokens()
    home.run("host", "stop")
    seen = home.run("status", "--all")
    assert "herd" in seen.stdout
    assert seen.stderr.startswith("the host was stopped at ")
    assert not home.client.is_up()
