"""`make deployment`: prefill and decode apart on this machine, without a GPU; a worker is killed and comes back.

The frontend and the workers are Dynamo's own, from PyPI, in an environment of their own (`.venv-dynamo`, 1.7 GB, half a
minute once). The workers simulate an engine: its scheduler, cache and the transfer of keys and values are real, its
tokens are random. What is left is in `build/deployment`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.files import write_atomic
from remuda.serving.tiny import printable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-dynamo"
FOLDER = ROOT / "build/deployment"
PACKAGE = "ai-dynamo==1.6.0"
LIMIT_S = 180.0
RECIPE = """\
# A recipe of srtctl, version 2, as it is.
schema: 2
name: apart
model: {{path: {model}, name: tiny}}
engine: {{type: mocker, speedup_ratio: 10}}
roles:
  prefill: {{workers: 2, args: {{block-size: 16}}}}
  decode: {{workers: 2, args: {{block-size: 16}}}}
frontend: {{type: dynamo}}
"""
END: Final = "<|end|>"
TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
LONGEST: Final = 32_768
"""Tokens of a request, answer included."""
SIZE: Final = 2048
"""Of the vocabulary. Dynamo's simulated engine answers with numbers below this, whatever the tokenizer has; those that
it lacks are no text, and who measures would never see a first token."""


def make_model_folder(folder: Path) -> Path:
    """Write a tokenizer, a chat template and a shape of two layers; returns the folder.

    Prompts are read byte by byte; the tokens beyond are words that only an answer has.

    Args:
        folder: is made where it is missing; what is there is replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in _files().items():
        write_atomic(folder / name, json.dumps(data, indent=1).encode())
    return folder


def _files() -> dict[str, Any]:
    letters = printable_bytes()
    end = SIZE - 1
    words = [*letters, *(f"Ġw{number}" for number in range(len(letters), end))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": end, "content": END, **special}],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                "vocab": {word: index for index, word in enumerate([*words, END])}, "merges": [],
            },
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "chat_template": TEMPLATE,
            "model_max_length": LONGEST, "clean_up_tokenization_spaces": False,
        },
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
            "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": SIZE,
            "max_position_embeddings": LONGEST, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
            "torch_dtype": "bfloat16", "tie_word_embeddings": True, "bos_token_id": end, "eos_token_id": end,
        },
        "generation_config.json": {"bos_token_id": end, "eos_token_id": end},
    }  # fmt: skip


def main() -> int:
    """Run it; 0 when all came as it should."""
    python = environment()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.chdir(FOLDER)
    os.environ["REMUDA_HOME"] = str(Path("home").resolve())
    Path("recipe.yaml").write_text(RECIPE.format(model=make_model_folder(Path("model").resolve())))
    begin = time.monotonic()
    try:
        tell("The recipe: 2 workers read prompts, 2 write answers, a frontend sends each request to one of each.")
        words = ["apply", "recipe.yaml", "--backend", "local"]
        remuda(*words, "--set", f"python={python}", shown=words)
        remuda("status", "apart")
        before = prefilled()
        tell(f"A question: {ask()['usage']['completion_tokens']} tokens came back,")
        tell(f"and prefill's own counter says that it had a part in it: {before:g} → {prefilled():g} requests.")
        pid = next(task["pid"] for task in tasks() if task["task"] == "decode/0")
        tell(f"A decode worker is killed: kill -9 {pid}. The other one serves.")
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        wait(lambda: phase() == "DEGRADED", "the loss is seen")
        remuda("status", "apart")
        wait(lambda: phase() == "RUNNING", "it is back")
        tell("It is back. Dynamo's frontend lists a worker that was killed for ten seconds more, and may ask it:")
        wait(lambda: all(answers() for _ in range(8)), "eight questions in a row are answered")
        tell(f"eight questions in a row are answered {time.monotonic() - killed:.0f} s after the kill.")
        remuda("explain", "apart")
        remuda("scale", "apart", "decode=3")
        wait(
            lambda: sum(task["task"].startswith("decode") for task in tasks() if task["phase"] == "ready") == 3, "three"
        )
        remuda("status", "apart")
    finally:
        for last in (["down", "apart"], ["host", "stop"]):
            subprocess.run([sys.executable, "-m", "remuda", *last], check=False)
    tell(f"{time.monotonic() - begin:.0f} s in all.")
    return 0


def environment() -> Path:
    """Interpreter that has Dynamo."""
    python, stamp = ENVIRONMENT / "bin/python", ENVIRONMENT / ".installed"
    if stamp.exists() and stamp.read_text() == PACKAGE:
        return python
    tell("Dynamo is installed (1.7 GB, once) …")
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", interpreter(), str(ENVIRONMENT)], check=True)
    only = ["--only-binary", ":all:"]  # A package of the same name that is built from sources is another one.
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *only, PACKAGE], check=True)
    stamp.write_text(PACKAGE)
    return python


def interpreter() -> str:
    """A Python 3.12 of this machine that runs: pyenv's stand-in in the PATH may name one that is not chosen."""
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.12*/bin/python3.12"))
    for found in filter(None, [shutil.which("python3.12"), *map(str, pyenv)]):
        if subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
            return found
    return "3.12"


def tell(text: str) -> None:
    """One line of the story."""
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


def remuda(*words: str, shown: list[str] | None = None) -> None:
    """Type one command and show it."""
    tell(f"$ remuda {shlex.join(shown or list(words))}")
    subprocess.run([sys.executable, "-m", "remuda", *words], check=True)


def view() -> dict[str, Any]:
    """The deployment as `status --json` shows it."""
    argv = [sys.executable, "-m", "remuda", "status", "apart", "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return found


def phase() -> str:
    """Of the whole deployment."""
    return str(view()["phase"])


def tasks() -> list[dict[str, Any]]:
    """Workers and frontend."""
    return list(view()["tasks"])


def ask() -> dict[str, Any]:
    """One request to the frontend."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "What is a remuda?"}], "max_tokens": 8}
    request = urllib.request.Request(f"{view()['endpoint']}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def answers() -> bool:
    """Whether a request is answered."""
    try:
        return bool(ask()["choices"])
    except urllib.error.HTTPError:
        return False


def prefilled() -> float:
    """Requests that all prefill workers count."""
    total = 0.0
    for task in tasks():
        if not task["task"].startswith("prefill"):
            continue
        with urllib.request.urlopen(f"{task['url']}/metrics", timeout=60) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("dynamo_component_requests_total") and 'dynamo_endpoint="generate"' in line:
                    total += float(line.rsplit(" ", 1)[1])
    return total


def wait(for_what: Callable[[], bool], what: str) -> None:
    """Look until it is so.

    Raises:
        TimeoutError: it was never so.
    """
    deadline = time.monotonic() + LIMIT_S
    while not for_what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {LIMIT_S:g} s: {what}")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
