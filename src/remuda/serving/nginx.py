"""nginx, the second choice: the least per request, least connections, no view of caches. Rendered whole, reloaded."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from remuda.base.errors import InputError, Unavailable
from remuda.plan.model import Role
from remuda.serving.client import call
from remuda.serving.router import (
    NO_KEYS,
    MemberChanges,
    RouterStats,
    WorkerStats,
    check_roles,
)

if TYPE_CHECKING:
    from remuda.serving.router import Keys, Member

POLL_S: Final = 0.05
SET_TIMEOUT_S: Final = 30.0
"""For setting the members: longer than the launcher waits for old workers, which know only those before."""
POLICIES: Final = {"least_conn": "  least_conn;\n", "round_robin": "", "random": "  random two least_conn;\n"}
MOST_CONNECTIONS: Final = 8192
_RESERVE: Final = 64
"""Descriptors of a worker that are no connections: log, files of large bodies, its master."""
HEAD_S: Final = 10
"""From a connection's first moment, or the first byte of a later head, to the head's end."""
UNAVAILABLE: Final = '{"error":{"message":"no replica is ready","type":"server_error","code":"no_available_workers"}}'
UNAUTHORIZED: Final = '{"error":{"message":"wrong API key","type":"invalid_request_error","code":"invalid_api_key"}}'


@dataclass(frozen=True)
class Site:
    """All that the configuration file says."""

    host: str
    port: int
    directory: str
    """Private directory of the launcher: control socket, pid, temporary files."""
    members: tuple[str, ...] = ()
    version: int = 0
    policy: str = "least_conn"
    timeout_s: float = 3600.0
    api_key: str = field(default="", repr=False)
    control_key: str = field(default="", repr=False)
    worker_key: str = field(default="", repr=False)
    user: str = ""
    """For worker processes when started by root."""
    connections: int = MOST_CONNECTIONS
    """Of each worker process, to clients and replicas; see `connections`."""


def render(site: Site) -> str:
    """The configuration file. Pure.

    Raises:
        InputError: a key or an address cannot stand in it.
    """
    timeout = f"{max(1, round(site.timeout_s))}s"
    folder = site.directory
    temporary = "".join(
        f"  {kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""{f"user {site.user};" if site.user else ""}
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
worker_processes auto;
worker_shutdown_timeout {timeout};
events {{ worker_connections {site.connections}; }}
http {{
  access_log off;
  server_tokens off;
  default_type application/json;
  client_max_body_size 512m;
  client_body_buffer_size 1m;
  keepalive_requests 1000000;
  client_header_timeout {HEAD_S}s;
{temporary}{_gate("api_allowed", site.api_key)}{_gate("control_allowed", site.control_key or site.api_key)}{_pool(site)}
  server {{
    listen {bracket(site.host)}:{site.port} backlog=4096;
    location = /health {{ return 200 "OK"; }}
    location = /remuda/version {{
      if ($control_allowed = 0) {{ return 401 '{UNAUTHORIZED}'; }}
      return 200 "{site.version}";
    }}
    location = /remuda/status {{
      if ($control_allowed = 0) {{ return 401 '{UNAUTHORIZED}'; }}
      stub_status;
    }}
    location = /remuda/members {{
      if ($control_allowed = 0) {{ return 401 '{UNAUTHORIZED}'; }}
      proxy_pass http://unix:{folder}/control.sock;
    }}
    location / {{
      if ($api_allowed = 0) {{ return 401 '{UNAUTHORIZED}'; }}
{_forward(site, timeout)}    }}
  }}
}}
"""


def connections(descriptors: int) -> int:
    """What a worker that may open so many files may be told: it closes idle clients before it is at its end. Pure."""
    return max(_RESERVE, min(MOST_CONNECTIONS, descriptors - _RESERVE))


def bracket(host: str) -> str:
    """An address as it stands before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _gate(name: str, key: str) -> str:
    if not key:
        return f"  map $request_method ${name} {{ default 1; }}\n"
    if not key.isprintable() or '"' in key:
        raise InputError("an API key for nginx must be printable and without double quotes")
    # A regular expression, because nginx compares plain strings without regard to case.
    return f'  map $http_authorization ${name} {{ default 0; "~^Bearer {re.escape(key)}$" 1; }}\n'


def _pool(site: Site) -> str:
    if not site.members:
        return ""
    servers = "".join(f"    server {netloc(url)} max_fails=1 fail_timeout=1s;\n" for url in sorted(site.members))
    return f"  upstream replicas {{\n  {POLICIES[site.policy]}{servers}    keepalive 512;\n  }}\n"


def _forward(site: Site, timeout: str) -> str:
    if not site.members:
        return f"      add_header Retry-After 1 always;\n      return 503 '{UNAVAILABLE}';\n"
    if site.worker_key and (not site.worker_key.isprintable() or '"' in site.worker_key or "$" in site.worker_key):
        raise InputError("the replicas' API key must be printable and without double quotes and $ for nginx")
    key = f'      proxy_set_header Authorization "Bearer {site.worker_key}";\n' if site.worker_key else ""
    return f"""      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
{key}      proxy_buffering off;
      proxy_connect_timeout 2s;
      proxy_read_timeout {timeout};
      proxy_send_timeout {timeout};
      proxy_next_upstream error timeout http_502 http_503 non_idempotent;
"""


def netloc(url: str) -> str:
    """`host:port` of a replica's address.

    Raises:
        InputError: it is not `http://host:port`.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not re.fullmatch(r"[\w.\-:\[\]]+", parts.netloc) or parts.path.strip("/"):
        raise InputError(f"nginx cannot send to {url!r}", hint="replicas have addresses like http://127.0.0.1:8000")
    return parts.netloc


class NginxRouter:
    """nginx behind the seam. The launcher takes the members at `/remuda/members` of the endpoint itself."""

    name = "nginx"
    roles = frozenset({Role.REPLICA})

    async def sync(
        self, base_url: str, members: frozenset[Member], keys: Keys = NO_KEYS, *, wait_s: float = 2.0
    ) -> MemberChanges:
        """Make the members exactly `members`."""
        check_roles(self, (member.role for member in members))
        key, urls = keys.control or keys.api, frozenset(member.url for member in members)
        before, _ = await _members(base_url, key)
        if before == urls:
            return MemberChanges()
        body = {"members": sorted(urls), "worker_key": keys.worker}
        answer = await call("PUT", f"{base_url}/remuda/members", body=body, key=key, timeout_s=SET_TIMEOUT_S)
        if answer.status != 200:
            raise Unavailable(f"the router at {base_url} answered {answer.status} when its members were set")
        version = str(answer.json()["version"]).encode()
        deadline = time.monotonic() + wait_s
        while (await call("GET", f"{base_url}/remuda/version", key=key)).body != version:
            if time.monotonic() >= deadline:
                return MemberChanges(removed=before - urls, pending=urls - before)
            await asyncio.sleep(POLL_S)
        return MemberChanges(added=urls - before, removed=before - urls)

    async def stats(self, base_url: str, keys: Keys = NO_KEYS) -> RouterStats:
        """What nginx counts: all requests, ours included; neither errors nor times."""
        key = keys.control or keys.api
        members, _ = await _members(base_url, key)
        text = (await call("GET", f"{base_url}/remuda/status", key=key)).body.decode(errors="replace")
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if len(numbers) != 7:
            raise Unavailable(f"the router at {base_url} answered no status: {text[:200]!r}")
        workers = tuple(WorkerStats(url=url, healthy=True) for url in sorted(members))
        return RouterStats(requests=numbers[3], running=max(0, numbers[5] - 1), workers=workers)


async def _members(base_url: str, key: str) -> tuple[frozenset[str], int]:
    answer = await call("GET", f"{base_url}/remuda/members", key=key)
    document = answer.json()
    if answer.status != 200 or not isinstance(document, dict) or not isinstance(document.get("members"), list):
        raise Unavailable(f"the router at {base_url} answered {answer.status} instead of its members")
    return frozenset(document["members"]), int(document["version"])
