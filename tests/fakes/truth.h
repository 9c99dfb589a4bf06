/* The flags of truth.c, and the words that its answers are made of. */

#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { KEY = 64 };

static struct {
    double port, first, period, length, template, after, pack, role, slots;
    double fail, half, cut, error, empty, stall;
    double usage, prompt, cache, slower, tenant, close, hints, freeze, echo;
    double ended, object, unknown, buffer, alone, continuous, hidden, told, trim;
} flag = {.first = 20, .period = 2, .length = 16, .template = 8, .pack = 1, .usage = 1, .prompt = 1};

static const struct { const char *name; double *value; } known[] = {
    {"port", &flag.port},         /* 0: a free one */
    {"first", &flag.first},       /* ms until the first token */
    {"period", &flag.period},     /* ms between tokens */
    {"length", &flag.length},     /* tokens, where the request does not force `max_tokens` */
    {"template", &flag.template}, /* input tokens beside the words of the prompt */
    {"after", &flag.after},       /* requests without faults, before the others */
    {"pack", &flag.pack},         /* tokens a piece */
    {"role", &flag.role},         /* 1: the role is sent at once, in a piece without content */
    {"slots", &flag.slots},       /* answers at the same time; the others wait in the order of their arrival */
    {"fail", &flag.fail},         /* share answered with HTTP 500 */
    {"half", &flag.half},         /* share whose connection is closed in the middle of the answer */
    {"cut", &flag.cut},           /* share that ends properly after half its tokens */
    {"error", &flag.error},       /* share with an `event: error` in the middle of the stream */
    {"empty", &flag.empty},       /* share without any token */
    {"stall", &flag.stall},       /* share that ends in the middle, properly for HTTP, without a finish and without [DONE] */
    {"usage", &flag.usage},       /* told completion tokens / true ones; 0: no usage */
    {"prompt", &flag.prompt},     /* told prompt tokens / true ones */
    {"cache", &flag.cache},       /* 1: remembers prompts by blocks of words, and tells how many tokens it knew; 2: only counts them */
    {"slower", &flag.slower},     /* each request takes this share longer than the one before */
    {"tenant", &flag.tenant},     /* tokens a second that somebody else has made here */
    {"close", &flag.close},       /* closes a kept connection on its next request after so many answers */
    {"freeze", &flag.freeze},     /* so many requests are answered, and then none */
    {"hints", &flag.hints},       /* informational answers (103) before the real one */
    {"ended", &flag.ended},       /* share whose finish_reason is `abort` */
    {"object", &flag.object},     /* share with an error of `"object": "error"` in the middle of the stream, which goes on */
    {"unknown", &flag.unknown},   /* 1: text is in a field that no client knows */
    {"buffer", &flag.buffer},     /* 1: a stream is sent in one piece, when it is whole */
    {"alone", &flag.alone},       /* 1: the first token is a piece of its own, whatever `pack` is */
    {"continuous", &flag.continuous}, /* 1: takes `continuous_usage_stats`; -1: refuses it */
    {"hidden", &flag.hidden},     /* so many first tokens are made and counted, and not sent */
    {"told", &flag.told},         /* 1: usage tells the hidden ones */
    {"trim", &flag.trim},         /* so many first requests end properly after half their tokens */
    {"echo", &flag.echo},         /* 1: the key that was sent is in answers, errors and the list of models */
};

enum ending { WHOLE, CLOSED, FAILED, STALLED };

struct exchange {
    bool is_chat, is_stream, is_waiting, has_head, is_aborted, is_odd, is_counted;
    enum ending ending;
    long total, upto, made, input, cached;
    int64_t read, start, first, last, late;
    double pace;
    char key[KEY + 1];
};

static char key_heard[128]; /* empty without `echo` */

static const char *const words[] = {" alpha", " bravo", " delta", " hotel", " india", " kilo", " lima", " oscar"};

static int put_usage(char *into, size_t room, const struct exchange *one)
{
    if (flag.usage <= 0)
        return snprintf(into, room, "null");
    long in = lround((double)one->input * flag.prompt), out = lround((double)one->made * flag.usage);
    int size = snprintf(into, room, "{\"prompt_tokens\":%ld,\"completion_tokens\":%ld,\"total_tokens\":%ld", in, out, in + out);
    if (flag.cache == 1)
        size += snprintf(into + size, room - (size_t)size, ",\"prompt_tokens_details\":{\"cached_tokens\":%ld}", one->cached);
    if (flag.told > 0)
        size += snprintf(into + size, room - (size_t)size, ",\"completion_tokens_details\":{\"reasoning_tokens\":%.0f}", flag.hidden);
    return size + snprintf(into + size, room - (size_t)size, "}");
}

/* One event as a chunk of HTTP. */
static size_t put_event(char *into, size_t room, const struct exchange *one, const char *inner, const char *finish)
{
    char body[4096], usage[256] = "null";
    if (one->is_counted)
        put_usage(usage, sizeof usage, one);
    int size = snprintf(body, sizeof body,
                        "data: {\"id\":\"truth-1\",\"object\":\"%s\",\"created\":1,\"model\":\"truth\",\"choices\":[{\"index\":0,"
                        "%s,\"logprobs\":null,\"finish_reason\":%s}],\"usage\":%s}\n\n",
                        one->is_chat ? "chat.completion.chunk" : "text_completion", inner, finish, usage);
    return (size_t)snprintf(into, room, "%x\r\n%s\r\n", (unsigned)size, body);
}

static size_t put_head(char *into, size_t room)
{
    return (size_t)snprintf(into, room, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n");
}

static void put_words(char *into, size_t room, long from, long count)
{
    size_t at = 0;
    *into = 0;
    int half = (int)strlen(key_heard) / 2;
    for (long n = from; n < from + count && at + sizeof key_heard < room; n++)
        at += (size_t)(half ? snprintf(into + at, room - at, "%.*s", n % 2 ? KEY : half, key_heard + (n % 2 ? half : 0))
                                     : snprintf(into + at, room - at, "%s", words[n % 8]));
}
