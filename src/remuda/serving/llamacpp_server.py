"""Runs llama.cpp's own server from its prebuilt wheel: `python -m remuda.enter llamacpp --model M.gguf …`.

The wheel has no command of its own, so this is it: flags in, one server, and an end that is sure.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from remuda.base.errors import InputError
from remuda.serving.flags import Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

INSTALL: Final = "pip install 'remuda[llamacpp]'"
CHECK_S: Final = 5.0
"""How often it is checked that something listens."""


def parser() -> Parser:
    """All flags; the engine's argv is checked against it in tests."""
    made = Parser("llamacpp")
    made.add_argument("--model", required=True, type=Path, help="GGUF file")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument("--port", type=int, default=8080, help="port to listen on")
    made.add_argument("--alias", default="", help="model name in answers (default: the file's name)")
    made.add_argument("--ctx-size", type=int, default=4096, help="tokens of context of each slot")
    made.add_argument("--parallel", type=int, default=4, help="slots: requests worked on at once")
    made.add_argument("--cache-ram", type=int, default=8192, help="MiB of memory for prompts seen (0: none, -1: all)")
    made.add_argument("--threads", type=int, default=0, help="CPU threads (0: the engine chooses)")
    made.add_argument("--threads-http", type=int, default=512, help="connections answered at once; see configure()")
    made.add_argument("--n-gpu-layers", type=int, default=-1, help="layers on the GPU (-1: as many as fit)")
    made.add_argument("--api-key-env", default="", help="environment variable that holds the key to ask for")
    made.add_argument("--metrics", action="store_true", help="serve Prometheus metrics at /metrics")
    made.add_argument("--embeddings", action="store_true", help="serve /v1/embeddings, too")
    made.add_argument("--pooling", choices=("mean", "cls", "last"), default="mean", help="for embeddings")
    made.add_argument("--chat-template-file", type=Path, help="Jinja template that replaces the model's own")
    return made


def configure(options: argparse.Namespace) -> Any:
    """The engine's own parameters.

    Raises:
        InputError: the wheel is missing, or a file is.
        SystemExit: the key is.
    """
    for file in (options.model, options.chat_template_file):
        if file is not None and not file.is_file():
            raise InputError(f"there is no file {str(file)!r}")
    key = parser().take(options.api_key_env)
    try:
        import xllamacpp
    except ImportError as error:
        raise InputError(f"llama.cpp's server cannot be imported ({error})", hint=INSTALL) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {options.alias or options.model.stem}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_parallel = options.parallel
    params.n_ctx = options.ctx_size * options.parallel
    # A thread is taken by each request until it is answered. With the engine's default (slots + 2) a busy server does
    # not answer /health, and would be restarted for it.
    params.n_threads_http = options.threads_http
    params.cache_ram_mib = options.cache_ram
    params.n_gpu_layers = options.n_gpu_layers
    params.api_keys = [key] if key else []
    params.endpoint_metrics = options.metrics
    params.ui = False
    params.offline = True
    params.cors_origins = ""  # a page in the user's browser must not reach a server on loopback
    params.reuse_port = False  # two engines on one port must be an error, not a lottery
    if options.threads > 0:
        params.cpuparams.n_threads = options.threads
        params.cpuparams_batch.n_threads = options.threads
    if options.embeddings:
        params.embedding = True
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{options.pooling.upper()}")
    if options.chat_template_file is not None:
        params.chat_template = options.chat_template_file.read_text()
    return params


def start(params: Any) -> Any:
    """The running server, its model loaded; until then /health answers 503 or nothing.

    Raises:
        RuntimeError: the model cannot be loaded or the port is taken; the engine has printed which.
    """
    import xllamacpp

    # While a model loads, the interpreter gets no turn: let the kernel end the process then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    return xllamacpp.Server(params)


def wait_for_signal_or_silence(host: str, port: int) -> bool:
    """Block; True after SIGTERM or SIGINT, False when nothing listens any more."""
    inner, outer = socket.socketpair()
    for end in (inner, outer):
        end.setblocking(False)
    # A signal may be delivered to one of the engine's threads; the descriptor wakes this one at once all the same.
    signal.set_wakeup_fd(outer.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    while True:
        if select.select([inner], [], [], CHECK_S)[0]:
            return True
        if _is_refused(host, port):
            return False


def _is_refused(host: str, port: int) -> bool:
    """Whether nothing listens there. A server that is only slow to accept is not refused."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False


def say(message: str) -> None:
    """One line for people."""
    sys.stderr.write(f"llamacpp_server: {message}\n")
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point.

    The process ends without the engine's destructor, which would wait for streams in flight: 30 s were seen.
    """
    options = parser().parse_args(argv)
    try:
        params = configure(options)
        server = start(params)
    except InputError as error:
        parser().error(f"{error.message}: {error.hint}" if error.hint else error.message)
    except RuntimeError as error:
        say(f"{error} Other lines say why.")
        sys.exit(1)
    asked = wait_for_signal_or_silence(options.host, options.port)
    if not asked:
        say(f"{server.listening_address} does not listen any more")
    os._exit(0 if asked else 1)


if __name__ == "__main__":
    main()
