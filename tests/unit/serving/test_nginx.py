"""The file that nginx is given."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.enter import words
from remuda.plan.front import POLICIES, RouterSettings, router_group
from remuda.plan.model import Endpoint, Role, Secret
from remuda.serving.nginx import NginxRouter, Site, connections, netloc, render
from remuda.serving.nginx_launcher import parser
from remuda.serving.router import Member

SITE = Site(host="127.0.0.1", port=8080, directory="/run/x")


def test_without_members_it_answers_503() -> None:
    text = render(SITE)
    assert "upstream" not in text
    assert "return 503" in text
    assert "listen 127.0.0.1:8080" in text


def test_members_share_by_least_connections_and_streams_are_not_held_back() -> None:
    text = render(Site(host="::", port=1, directory="/run/x", members=("http://b:2", "http://a:1"), timeout_s=7))
    assert text.index("server a:1") < text.index("server b:2")
    for expected in (
        "least_conn;",
        "keepalive 512;",
        "proxy_buffering off;",
        "proxy_read_timeout 7s;",
        "listen [::]:1",
    ):
        assert expected in text


def test_it_is_told_of_fewer_connections_than_it_may_open_files() -> None:
    assert [connections(files) for files in (1 << 20, 1024, 256, 20)] == [8192, 960, 192, 64]
    text = render(Site(host="h", port=1, directory="/x", connections=960))
    assert "worker_connections 960;" in text
    assert "client_header_timeout 10s;" in text


def test_a_key_is_compared_to_the_letter_and_cannot_break_out() -> None:
    text = render(Site(host="h", port=1, directory="/x", api_key="a.b$c"))
    assert r'"~^Bearer a\.b\$c$" 1;' in text
    for bad in ('x"; } evil', "line\nbreak"):
        with pytest.raises(InputError):
            render(Site(host="h", port=1, directory="/x", api_key=bad))
        with pytest.raises(InputError):
            render(Site(host="h", port=1, directory="/x", members=("http://a:1",), worker_key=bad))
    assert "a.b$c" not in repr(Site(host="h", port=1, directory="/x", api_key="a.b$c"))


@pytest.mark.parametrize("url", ["https://a:1", "http://a:1/path", "http://a; evil", "a:1", "http://a:1 b"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError):
        netloc(url)


def test_the_launcher_reads_what_is_rendered() -> None:
    endpoint = Endpoint(port=8080, router="router", model="tiny", api_key=Secret(file="/keys/api"))
    command = router_group("nginx", RouterSettings(endpoint, 2, "round_robin")).command
    argv = [part.replace("__REMUDA_PORT__", "9") for part in command.argv[4:]]
    options = parser().parse_args(argv)
    assert (options.policy, options.port, options.timeout_s) == ("round_robin", 9, 3600.0)
    assert options.api_key_env in command.secret_env
    with pytest.raises(InputError, match="cache_aware"):
        router_group("nginx", RouterSettings(endpoint, 2, "cache_aware"))


def test_without_nginx_it_says_how_to_get_it() -> None:
    command = [sys.executable, *words("nginx"), "--port", "1", "--nginx", "no-such-nginx"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "apt-get install nginx-light" in answer.stderr
    assert answer.stderr.count("\n") == 1


members = st.frozensets(
    st.builds(
        "http://{}:{}".format,
        st.from_regex(r"[a-z][a-z0-9-]{0,9}|10\.0\.0\.[1-9]", fullmatch=True),
        st.integers(1, 65535),
    ),
    max_size=40,
)


@given(members, st.sampled_from(sorted(POLICIES["nginx"])))
def test_the_file_names_exactly_the_members(urls: frozenset[str], policy: str) -> None:
    text = render(Site(host="h", port=1, directory="/x", members=tuple(urls), policy=policy))
    assert {f"http://{name}" for name in re.findall(r" server (\S+) max_fails", text)} == urls
    assert text.count("proxy_pass http://replicas;") == (1 if urls else 0)
    assert text.count("{") == text.count("}")


async def test_a_server_that_only_prefills_is_refused_before_anybody_is_asked() -> None:
    refusal = "nginx cannot send to a prefill server"
    with pytest.raises(InputError, match=refusal):
        router_group("nginx", RouterSettings(Endpoint(port=1, router="router", model="m"), 2, apart=True))
    with pytest.raises(InputError, match=refusal):
        await NginxRouter().sync("http://127.0.0.1:1", frozenset({Member("http://127.0.0.1:2", Role.PREFILL)}))
