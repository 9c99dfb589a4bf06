"""A tiny language model made on the spot, so that a real engine can be run where nothing may be downloaded.

It is a llama of two layers whose weights are partly random and partly set by hand: every token belongs to a word class,
the class of the last token decides which classes may follow, and the random rest decides which word. So it answers with
sentences that are grammatical nonsense, in about a millisecond a token, and the same file comes out on every machine.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    import gguf
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

WIDTH: Final = 64
LAYERS: Final = 2
HEADS: Final = 4
HEAD: Final = WIDTH // HEADS
FEED: Final = 128
CONTEXT: Final = 8192
SEED: Final = 20261121

WORDS: Final = {
    "open": "The A One Every Some Our That No",
    "again": " The A One Every Some Our That",
    "animate": " old brown young sleepy patient clever quiet gentle spotted tall proud dusty brave curious",
    "subject": " horse rider fox mare foal wrangler crow hound pony cook cat stranger owl goose farrier herd mule hare",
    "verb": " runs waits sings sleeps wanders dreams rests walks grazes turns listens gallops stands drifts settles",
    "adverb": " quietly always slowly seldom gladly often never calmly",
    "link": " and then but",
    "where": " by under over near beyond across along behind beside toward through",
    "which": " the a that every its some",
    "thing_like": " wide silver wooden distant warm golden empty broken little cold blue tall painted",
    "thing": (
        " river moon fence valley barn fire hill road well orchard stable saddle lantern meadow canyon wagon bridge"
        " creek mountain kettle gate sky prairie village trail winter morning"
    ),
    "stop": ". !",
}
#: What may follow each class, with its share. `other` is every byte, word fragment and control token.
FOLLOW: Final = {
    "line": {"open": 1.0},
    "open": {"animate": 0.5, "subject": 0.5},
    "again": {"animate": 0.5, "subject": 0.5},
    "animate": {"subject": 0.9, "animate": 0.1},
    "subject": {"verb": 0.8, "adverb": 0.2},
    "adverb": {"verb": 1.0},
    "verb": {"where": 0.75, "link": 0.1, "stop": 0.15},
    "link": {"verb": 1.0},
    "where": {"which": 1.0},
    "which": {"thing_like": 0.4, "thing": 0.6},
    "thing_like": {"thing": 1.0},
    "thing": {"stop": 0.7, "where": 0.18, "link": 0.12},
    "stop": {"end": 0.5, "again": 0.5},
    "other": {"which": 0.5, "where": 0.5},
    "blank": {"which": 0.5, "where": 0.5},
    "end": {"line": 1.0},
    "quote": {"open": 1.0},
}
CLASSES: Final = tuple(FOLLOW)
BRACE: Final = len(CLASSES)
"""Dimension that marks the token `{`."""
INSIDE: Final = BRACE + 1
"""Dimension that one head sets once a `{` was seen: strings then end soon, so constrained JSON output ends, too."""
FREE: Final = INSIDE + 1
"""First of the random dimensions."""
STRONG: Final = 4.0
NOISE: Final = 0.5
UNLIKELY: Final = -14.0
"""Logit of what does not follow: rare enough never to be sampled, and there when a grammar leaves nothing else."""
TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Vocabulary:
    """Byte-level BPE by hand: all bytes, all words, and the fragments that lead to them."""

    tokens: tuple[str, ...]
    """In the printable alphabet of byte-level BPE (a space is `Ġ`)."""
    merges: tuple[str, ...]
    classes: tuple[str, ...]
    """Class by token."""

    def __len__(self) -> int:
        return len(self.tokens)


def make_tiny_model(path: Path) -> Path:
    """Write the model to `path` and return it. An existing file is replaced, never seen half written.

    Cost: about half a second, 1.2 MB.

    Raises:
        InputError: `gguf` or `numpy` is not installed.
    """
    try:
        import gguf
        import numpy as np  # noqa: F401 - here so that a missing one is told like a missing gguf
    except ImportError as error:
        hint = "pip install 'remuda[llamacpp]'"
        raise InputError(f"making the tiny model needs the package {error.name!r}", hint=hint) from error
    vocabulary = make_vocabulary()
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    try:
        writer = gguf.GGUFWriter(temporary, "llama")
        _write_shape(writer, len(vocabulary))
        _write_tokenizer(writer, vocabulary)
        for name, tensor in make_weights(vocabulary).items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def printable_bytes() -> tuple[str, ...]:
    """The character that stands for each byte in byte-level BPE (the table of GPT-2)."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return tuple(chr(byte) if byte in plain else chr(next(spare)) for byte in range(256))


def make_vocabulary() -> Vocabulary:
    """All bytes, then fragments and words in the order of their merges, then the control tokens."""
    letters = printable_bytes()
    classes = dict.fromkeys(letters, "other") | dict.fromkeys(letters[:0x21], "blank")
    classes |= {letters[0x0A]: "line", letters[0x22]: "quote"}
    merges: dict[str, str] = {}
    for name, words in WORDS.items():
        space = letters[0x20] if words.startswith(" ") else ""
        for word in words.split():
            spelled = space + word
            for end in range(2, len(spelled) + 1):
                classes.setdefault(spelled[:end], "other")
                merges.setdefault(spelled[:end], f"{spelled[: end - 1]} {spelled[end - 1]}")
            classes[spelled] = name
    classes |= dict.fromkeys(CONTROL, "other") | {CONTROL[2]: "end"}
    # Those that begin with a space come first, else the `Th` of `The` would break ` The`.
    order = sorted(merges, key=lambda token: (len(token), not token.startswith(letters[0x20]), token))
    return Vocabulary(tuple(classes), tuple(merges[token] for token in order), tuple(classes.values()))


def make_weights(vocabulary: Vocabulary) -> dict[str, Floats]:
    """All tensors by their name in the file, row-major as `gguf` takes them. The same on every machine."""
    import numpy as np

    random = np.random.Generator(np.random.PCG64(SEED))

    def noise(rows: int, columns: int, scale: float) -> Floats:
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    tensors = {
        "token_embd.weight": _embedding(vocabulary, noise(len(vocabulary), WIDTH, NOISE)),
        "output.weight": _output(vocabulary, noise(len(vocabulary), WIDTH, 0.2)),
        "output_norm.weight": np.ones(WIDTH, np.float32),
    }
    for layer in range(LAYERS):
        block = {
            "attn_q": noise(WIDTH, WIDTH, 0.3),
            "attn_k": noise(WIDTH, WIDTH, 0.3),
            "attn_v": noise(WIDTH, WIDTH, 0.15),
            "attn_output": noise(WIDTH, WIDTH, 0.03),
            "ffn_gate": noise(FEED, WIDTH, 0.15),
            "ffn_up": noise(FEED, WIDTH, 0.15),
            "ffn_down": noise(WIDTH, FEED, 0.02),
        }
        block["attn_output"][:FREE] = 0.0  # the hand-set dimensions pass through unchanged
        block["ffn_down"][:FREE] = 0.0
        if layer == 0:
            _watch_for_brace(block)
        ones = {"attn_norm": np.ones(WIDTH, np.float32), "ffn_norm": np.ones(WIDTH, np.float32)}
        tensors |= {f"blk.{layer}.{name}.weight": tensor for name, tensor in (block | ones).items()}
    return tensors


def _embedding(vocabulary: Vocabulary, table: Floats) -> Floats:
    """One strong dimension for a token's class, noise in the free ones."""
    table[:, :FREE] = 0.0
    for token, name in enumerate(vocabulary.classes):
        table[token, CLASSES.index(name)] = STRONG
    table[vocabulary.tokens.index("{"), BRACE] = STRONG
    return table


def _output(vocabulary: Vocabulary, table: Floats) -> Floats:
    """Logit of each token after each class: log of the class's share, spread over its members."""
    import math

    after_norm = STRONG / math.sqrt((STRONG**2 + 1.3 * (WIDTH - FREE) * NOISE**2) / WIDTH)
    table[:, :FREE] = 0.0
    members = {name: vocabulary.classes.count(name) for name in CLASSES}
    for token, name in enumerate(vocabulary.classes):
        for last, shares in FOLLOW.items():
            share = shares.get(name, 0.0)
            never = UNLIKELY * (1.5 if name in ("blank", "line") else 1.0)  # JSON may have blanks without end
            logit = math.log(share / members[name]) if share else never
            table[token, CLASSES.index(last)] = logit / after_norm
        if name == "quote":
            table[token, INSIDE] = -0.75 * UNLIKELY / after_norm
    return table


def _watch_for_brace(block: dict[str, Floats]) -> None:
    """Make the first head look for `{` anywhere before, and put what it finds into `INSIDE`.

    The last rotary pair of a head turns slowest, so the score hardly depends on how far back the brace is.
    """
    slow = HEAD - 2
    for name in ("attn_q", "attn_k", "attn_v"):
        block[name][:HEAD] = 0.0
    block["attn_q"][slow, : len(CLASSES)] = 4.0  # every token has one class, so this is a constant
    block["attn_k"][slow, BRACE] = 4.0
    block["attn_v"][0, BRACE] = 1.0
    block["attn_output"][:, :HEAD] = 0.0
    block["attn_output"][INSIDE, 0] = 1.0


def _write_shape(writer: gguf.GGUFWriter, vocabulary_size: int) -> None:
    import gguf

    writer.add_name("remuda tiny")
    writer.add_description("word salad for tests and demonstrations; not a trained model")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _write_tokenizer(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    import gguf

    types = [gguf.TokenType.CONTROL if token in CONTROL else gguf.TokenType.NORMAL for token in vocabulary.tokens]
    ids = {token: vocabulary.tokens.index(token) for token in CONTROL}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(types)
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(ids[CONTROL[0]])
    writer.add_eos_token_id(ids[CONTROL[2]])
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(TEMPLATE)
