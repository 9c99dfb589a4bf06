"""Questions before a load: who answers, how long a prompt is here, and whether output lengths are obeyed."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from remuda.base.endpoint import redirected, refused
from remuda.base.errors import InputError, Rejected, Unavailable
from remuda.bench.counters import Counters, read_counters
from remuda.bench.generator import asking, tokenizer
from remuda.bench.generator.http_stream import SMALL, HttpStream, words_of
from remuda.bench.generator.prompts import PromptFit, Prompts
from remuda.bench.generator.reading import RequestRow, hide, read
from remuda.bench.load import Cache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from remuda.bench.generator.http_stream import RequestTarget, TimedAnswer
    from remuda.bench.load import Load

T = TypeVar("T")
_ASK_S: Final = 10.0
#: All questions before a load or after it together, of which one may take as long as a request of the load.
_ALL_S: Final = 120.0
#: Bytes of `/metrics`, of which engines have 1 MB; models of a list; letters of what a server says of itself.
_METRICS, _MODELS, _LETTERS = 8 << 20, 1000, 300
#: How long an endpoint that does not listen is waited for.
_WAIT_S: Final = 3.0
#: Words of the two prompts that the length of a word is measured with.
_SHORT, _LONG = 16, 208
#: Answers that show whether lengths are obeyed.
_TRIES: Final = 3
#: A probe may ask for so many output tokens; more would take as long as a point.
_MOST_OUT: Final = 32


@dataclass(frozen=True)
class EndpointFacts:
    """What an endpoint says of itself at one moment.

    Attributes:
        models: names listed; None where it lists none.
        identity: version and kind of the server, as far as it tells them.
        counters: of the engine; None without.
    """

    models: tuple[str, ...] | None
    identity: str
    counters: Counters | None


@dataclass(frozen=True)
class Fitted:
    """What probes found.

    Attributes:
        fit: what prompts are made of, and words to tokens.
        forced: the engine goes on until the length asked for.
        template: input tokens that a prefix cache knows of any second prompt; -1 where nobody says.
        out: output tokens that the probes cost.
        counted: a piece is several tokens, and the engine says how many where it is asked to.
    """

    fit: PromptFit
    forced: bool
    template: int = -1
    out: int = 0
    counted: bool = False


async def fetch(place: RequestTarget, path: str, largest: int = SMALL) -> TimedAnswer:
    """GET, once, of at most so many bytes.

    Raises:
        OSError: nobody listens.
    """
    line = await HttpStream.connect(place)
    try:
        return await line.start(place.request(path), _ASK_S, largest=largest)
    finally:
        line.close()


async def look(place: RequestTarget, engines: Sequence[RequestTarget] = ()) -> EndpointFacts:
    """What the endpoint says now. `engines` are asked for counters in its stead where they are known.

    Raises:
        Unavailable: nobody answers, or not in time.
        Rejected: the key is refused, or it points elsewhere.
    """
    return await _in_time(_look(place, engines), place, 0.0)


async def _in_time(asking: Awaitable[T], place: RequestTarget, request_s: float) -> T:
    try:
        return await asyncio.wait_for(asking, request_s + _ALL_S)
    except TimeoutError:
        words = f"endpoint {place.base} did not answer all that is asked beside a load in {request_s + _ALL_S:g} s"
        raise Unavailable(words, hint="see the server's log") from None


async def _look(place: RequestTarget, engines: Sequence[RequestTarget]) -> EndpointFacts:
    answer = await _patient(place, "/v1/models")
    if answer.status in {401, 403}:
        raise refused(place.base, answer.status)
    if 300 <= answer.status < 400:
        raise redirected(place.base, f"redirects (HTTP {answer.status})")
    models: tuple[str, ...] | None = None
    words = []
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        if answer.status == 200:
            listed = orjson.loads(b"".join(answer.pieces))["data"]
            models = tuple(hide(str(item["id"]), place.key) for item in listed)
            words = sorted({hide(str(item.get("owned_by", "")), place.key) for item in listed})
    version = await _version(place)
    texts = [await _text(one, "/metrics", _METRICS) for one in engines or [place]]
    models = models and tuple(name[:_LETTERS] for name in models[:_MODELS])
    said = " ".join([*words, version]).strip()[:_LETTERS]
    return EndpointFacts(models, said, read_counters(texts) if all(texts) else None)


async def _patient(place: RequestTarget, path: str) -> TimedAnswer:
    until = monotonic_ns() + int(_WAIT_S * 1e9)
    while True:
        try:
            answer = await fetch(place, path)
            reason = hide(answer.error, place.key) or f"HTTP {answer.status}"
            if not answer.error and answer.status not in {502, 503, 504}:
                return answer
        except ssl.SSLError as error:
            hint = "name the certificate that it is signed by: --ca-file FILE; or check none: --insecure"
            raise Unavailable(f"endpoint {place.base} does not answer: {words_of(error)}", hint=hint) from error
        except OSError as error:
            reason = words_of(error)
        if monotonic_ns() > until:
            raise Unavailable(
                f"endpoint {place.base} does not answer: {reason}",
                hint="see that it runs (`remuda status`) and that the address is right",
            )
        await asyncio.sleep(0.25)


async def _text(place: RequestTarget, path: str, largest: int = SMALL) -> str:
    try:
        answer = await fetch(place, path, largest)
    except OSError:
        return ""
    return b"".join(answer.pieces).decode(errors="replace") if answer.status == 200 and not answer.error else ""


async def _version(place: RequestTarget) -> str:
    """Of vLLM and SGLang (`/version`, `/get_server_info`), of llama.cpp (`/props`)."""
    for path, key in (("/version", "version"), ("/props", "build_info")):
        with contextlib.suppress(ValueError, AttributeError):
            found = orjson.loads(await _text(place, path)).get(key)
            if isinstance(found, str):
                return hide(found[:80], place.key)
    return ""


async def fit(place: RequestTarget, load: Load, model: str, engines: Sequence[RequestTarget] = ()) -> Fitted:
    """Find what prompts of a length are made of here, and whether output lengths are obeyed.

    Args:
        place: who is measured.
        load: what will be asked.
        model: as the endpoint names it.
        engines: of which one is asked for its tokenizer in the endpoint's stead.

    Raises:
        InputError: the chat template alone is longer than the input of this load.
        Rejected: the endpoint refuses the requests of this load.
        Unavailable: it does not answer, or not in time.
    """
    return await _in_time(_fit(place, load, model, engines), place, load.timeout_s)


async def _fit(place: RequestTarget, load: Load, model: str, engines: Sequence[RequestTarget]) -> Fitted:
    probe = _Probe(place, load, model)
    forced = await probe.is_forced()
    await probe.try_counting()
    for exact in await tokenizer.candidates(engines[0] if engines else place, load.api, model):
        if (found := await probe.exact(exact)) is not None:
            return probe.fitted(found, forced=forced)
    return await _calibrated(probe, load, forced=forced)


async def _calibrated(probe: _Probe, load: Load, *, forced: bool) -> Fitted:
    """How many tokens a word has in the mean."""
    wide = min(_LONG, max(_SHORT * 2, load.isl))
    short, long = await probe.input_of(_SHORT), await probe.input_of(wide)
    if short < 0 or long <= short:
        return Fitted(PromptFit(), forced, -1, probe.out, probe.counted)  # Nobody says: words stand for tokens.
    slope = (long - short) / (wide - _SHORT)
    found = PromptFit(short - slope * _SHORT, slope)
    _check_room(found, load)
    words = found.words(load.isl)
    found = refit(found, [(words, await probe.input_of(words)) for _ in range(2)])
    return probe.fitted(found, forced=forced)


def _check_room(found: PromptFit, load: Load) -> None:
    if load.isl < found.base:
        raise InputError(
            f"the chat template alone has {found.base:.0f} tokens, more than --isl {load.isl}",
            where="--isl", hint="ask for more, or use --api completions",
        )  # fmt: skip


def refit(known: PromptFit, seen: Sequence[tuple[int, int]]) -> PromptFit:
    """The same with a slope that fits prompts that were sent: (words, tokens). Pure."""
    words, tokens = sum(pair[0] for pair in seen), sum(pair[1] for pair in seen)
    if known.is_exact or words <= len(seen) or min(pair[1] for pair in seen) < 0:
        return known
    return replace(known, slope=max(0.05, (tokens - known.base * len(seen)) / words))


class _Probe:
    """Asks, one request after the other; each prompt is new to every cache."""

    def __init__(self, place: RequestTarget, load: Load, model: str) -> None:
        self._place, self._load, self._model = place, load, model
        self._length = min(load.osl, _MOST_OUT)
        # Nobody has ever sent these before: what a cache knows of them is known of any prompt.
        self._prompts = Prompts(secrets.token_hex(8), Cache())
        self._count = 0
        self._forced = True
        self.counted = self._is_packed = False
        self.out = 0
        self.cached = -1

    async def is_forced(self) -> bool:
        """Whether the engine knows, and obeys, the words that force a length."""
        for _ in range(_TRIES):  # One answer that was cut short says nothing of the others.
            with contextlib.suppress(Rejected):
                if (await self._ask(_SHORT, self._length)).n_out == self._length:
                    return True
        self._forced = False
        await self._ask(_SHORT, self._length)
        return False

    async def try_counting(self) -> None:
        """Ask for usage in each piece, where pieces hold several tokens; `counted` says whether it came."""
        if self._is_packed:
            self.counted = True
            with contextlib.suppress(Rejected):
                self.counted = (await self._ask(_SHORT, self._length)).is_sure
                return
            self.counted = False

    async def exact(self, made: PromptFit) -> PromptFit | None:
        """The same with its base, where three prompts have as many tokens as it says; None where they have not.

        Raises:
            InputError: what is always there is longer than the input of this load.
        """
        before, self._prompts = self._prompts, Prompts(secrets.token_hex(8), Cache(), fit=made)
        try:
            found = replace(made, base=await self.input_of(_SHORT) - _SHORT)
            if found.base < 0:
                return None
            _check_room(found, self._load)
            counts = min(_LONG, max(_SHORT * 2, self._load.isl)), found.words(self._load.isl)
            right = [await self.input_of(count) == found.base + count for count in counts]
            return found if all(right) else None
        except Rejected:
            return None
        finally:
            self._prompts = before

    def fitted(self, found: PromptFit, *, forced: bool) -> Fitted:
        """What was found, with what it cost."""
        fitted = Fitted(found, forced, -1, self.out, self.counted)
        # A router may have shown the probes to replicas that had not seen the template yet.
        return fitted if self.cached < 0 else replace(fitted, template=max(self.cached, round(found.base)))

    async def input_of(self, words: int) -> int:
        """Input tokens of a prompt that long; -1 where nobody says."""
        row = await self._ask(words, 1)
        if row.cached >= 0:
            self.cached = max(self.cached, row.cached)
        return row.n_in

    async def _ask(self, words: int, osl: int) -> RequestRow:
        self._count += 1
        prompt = self._prompts.of(-1_000_000 - self._count, words)
        extra: dict[str, Any] = orjson.loads(self._load.extra_body)
        body = asking.body(
            self._load.api, self._model, prompt, osl, stream=self._load.stream, forced=self._forced,
            counted=self.counted, extra=extra,
        )  # fmt: skip
        try:
            line = await HttpStream.connect(self._place)
        except OSError as error:
            raise Unavailable(f"endpoint {self._place.base} does not answer: {words_of(error)}") from error
        try:
            request = self._place.request(asking.PATHS[self._load.api], body)
            answer = await line.start(request, self._load.timeout_s, osl)
        finally:
            line.close()
        row = RequestRow(-1)
        read(answer, row, stream=self._load.stream, key=self._place.key)
        if row.error:
            if row.status in {401, 403}:
                raise refused(self._place.base, row.status)
            raise Rejected(f"{self._place.base} refuses a request of this load: {row.error}", hint=_hint(row.status))
        self.out += max(0, row.n_out)
        self._is_packed = self._is_packed or not row.is_sure
        return row


def _hint(status: int) -> str:
    if status == 404:
        return "see that the model and --api are right"
    if status in {400, 413, 422}:
        return "the model's context may be shorter than --isl + --osl"
    return "see the server's log"
