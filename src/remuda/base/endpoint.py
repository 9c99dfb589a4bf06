"""The address of an endpoint, the key that is meant for it, and what is said when it refuses."""

from __future__ import annotations

from urllib.parse import urlsplit

from remuda.base.errors import InputError, Rejected
from remuda.base.secrets import SecretRef
from remuda.base.settings import sources

_KEYS = ("OPENAI_API_KEY", "REMUDA_API_TOKEN", "DOMYN_SWARM_API_TOKEN", "API_TOKEN")
_ADDRESSES = ("OPENAI_BASE_URL", "ENDPOINT")
_OPENAI = "https://api.openai.com/v1"


def base_url(endpoint: str) -> str:
    """The URL without `/v1` and trailing slashes.

    Raises:
        InputError: it is not an http(s) URL with a host, or carries a password.
    """
    text = endpoint.strip()
    if "://" not in text:
        text = f"http://{text}"
    parts = urlsplit(text)
    try:
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        whole = False
    if not whole:
        raise InputError(
            f"{endpoint!r} is not the URL of an endpoint", hint="write http://HOST:PORT", where="--endpoint"
        )
    if parts.username or parts.password:
        raise InputError("the endpoint's URL carries a user or password", hint="give a key by --api-key-env instead")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def default_key(endpoint: str) -> str:
    """The key that is meant for this endpoint, see `key_meant_for`; empty without one."""
    return key_meant_for(endpoint)[1]


def key_meant_for(endpoint: str) -> tuple[str, str]:
    """Name and value of the variable whose key may be shown to this endpoint unasked; two empty strings without one.

    A key goes where the same source (the environment, or one `.env` file) says that it belongs: to the endpoint that
    its `OPENAI_BASE_URL` or `ENDPOINT` names. One source's key never goes to another one's address, nor to whoever a
    flag names. `OPENAI_API_KEY` alone is meant for api.openai.com.
    """
    for _, values in sources():
        named = [values[name] for name in _ADDRESSES if values.get(name)]
        for name in _KEYS:
            meant = named or ([_OPENAI] if name == "OPENAI_API_KEY" else [])
            if values.get(name) and any(_is_same(address, endpoint) for address in meant):
                return name, values[name]
    return "", ""


def _is_same(one: str, other: str) -> bool:
    try:
        return base_url(one) == base_url(other)
    except InputError:
        return False


def read_key(endpoint: str, *, env: str, file: str) -> str:
    """The key by reference, or the one that is meant for the endpoint.

    Raises:
        InputError: the file or variable named is missing or empty.
    """
    if env or file:
        return SecretRef(file=file, env=env).read()
    return default_key(endpoint)


def refused(endpoint: str, status: int) -> Rejected:
    """The error for a key that an endpoint does not take."""
    return Rejected(
        f"{endpoint} refuses the API key (HTTP {status})",
        hint="name the key's variable with --api-key-env: unasked, a key goes only to the endpoint that "
        "OPENAI_BASE_URL names beside it",
    )


def redirected(endpoint: str, how: str) -> Rejected:
    """The error for an endpoint that sends its clients elsewhere; `how` is "redirects ... to URL"."""
    target = how.rpartition(" to ")[2]
    if not target.startswith(("http://", "https://")):
        hint = "see that --endpoint names the server itself, without a path"
    elif _server(target) == _server(base_url(endpoint)):
        hint = "it sends its clients back to itself; see that --endpoint has the right scheme and path, without /v1"
    else:
        hint = "a question and its key go to no other server unasked; if that is the right one, name it with --endpoint"
    return Rejected(f"{endpoint} {how}", hint=hint)


def _server(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def pick_model(models: list[str], endpoint: str) -> str:
    """The only model served.

    Raises:
        InputError: there are several or none; the message names them.
    """
    if len(models) == 1:
        return models[0]
    if not models:
        raise InputError(f"{endpoint} does not say which model it serves", hint="name it with --model")
    raise InputError(f"{endpoint} serves several models: {', '.join(models[:20])}", hint="choose one with --model")
