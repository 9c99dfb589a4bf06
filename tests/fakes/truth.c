/* An OpenAI-compatible server that keeps an exact schedule and writes down what it did when.

   One thread, epoll, HTTP/1.1 with keep-alive. The first token of an answer is sent `first` ms after the last byte of its
   request was read, token n `period` ms after token n - 1, on an absolute schedule: being late once delays nothing later.
   A line of JSON per answer holds the moments, in ns of CLOCK_MONOTONIC, when the request was whole and when send() of
   the first and of the last content had returned. So a client's figures can be held against what really happened, on a
   machine of any speed. A token is a word; faults are switched on by flags, see `known` in truth.h.

   It is for clients on this machine that write JSON without spaces; what it cannot read it drops. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "truth.h"

enum { CONNECTIONS = 4096, REQUEST = 1 << 18, BLOCK = 16, TABLE = 1 << 20 };
static const int64_t NEVER = INT64_MAX;

struct connection {
    bool is_open, is_busy;
    long answers;
    size_t have;
    struct exchange now;
    char in[REQUEST + 1];
};

static struct connection *connections[CONNECTIONS];
static int64_t due[CONNECTIONS]; /* apart from the rest: all of them are looked through on each turn */
static int top, poller, waiting[1 << 16];
static unsigned from_waiting, upto_waiting;
static long requests, active, tokens_out, tokens_in, hits;
static double born;
static int64_t born_ns;
static uint64_t blocks[TABLE];
static FILE *records;
static volatile sig_atomic_t is_ending;
static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void finish_waiting(void);

static void leave_slot(struct exchange *one)
{
    if (!one->is_waiting) {
        active--;
        finish_waiting();
    }
    one->is_waiting = false;
}

static void drop(int fd)
{
    struct connection *line = connections[fd];
    if (line->is_busy)
        leave_slot(&line->now);
    line->is_open = line->is_busy = false;
    due[fd] = NEVER;
    close(fd);
}

static bool say(int fd, const char *text, size_t size)
{
    if (send(fd, text, size, MSG_NOSIGNAL) == (ssize_t)size)
        return true;
    drop(fd); /* A client that does not read is none. */
    return false;
}

static bool answer(int fd, int status, const char *type, const char *body)
{
    static char text[1 << 16];
    int size = snprintf(text, sizeof text, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
                        status, status == 200 ? "OK" : "Error", type, strlen(body), body);
    return say(fd, text, (size_t)size);
}

/* Whether the n-th request is one of this share; they are spread evenly, and the same ones each time. */
static bool strikes(double share, long n)
{
    return n > 0 && floor((double)n * share) > floor((double)(n - 1) * share);
}

/* Tokens of a prompt that were in an earlier one, in whole blocks from its beginning; it is known from now on. */
static long cached_of(const char *text, const char *end)
{
    uint64_t hash = 1469598103934665603ULL;
    long count = 0, found = 0;
    bool is_known = true;
    for (const char *at = text; at <= end; at++) {
        if (at < end)
            hash = (hash ^ (unsigned char)*at) * 1099511628211ULL;
        if (*at != ' ' && at != end)
            continue;
        if (++count % BLOCK)
            continue;
        size_t slot = hash % TABLE;
        while (blocks[slot] && blocks[slot] != hash)
            slot = (slot + 1) % TABLE;
        is_known = is_known && blocks[slot] == hash;
        blocks[slot] = hash;
        found += is_known ? BLOCK : 0;
    }
    return found;
}

static const char *behind(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? at + strlen(name) : NULL;
}

static void note(const struct exchange *one, int status)
{
    if (records)
        fprintf(records,
                "{\"key\":\"%s\",\"status\":%d,\"ending\":%d,\"read\":%lld,\"first\":%lld,\"last\":%lld,\"tokens\":%ld,"
                "\"late\":%lld}\n",
                one->key, status, (int)one->ending, (long long)one->read, (long long)one->first, (long long)one->last,
                one->made, (long long)one->late);
}

/* Tokens of the next piece; those that are hidden are made before the first. */
static long next_of(const struct exchange *one)
{
    long count = (one->made ? 0 : (long)flag.hidden) + (flag.alone > 0 && !one->made ? 1 : (long)flag.pack);
    return one->upto - one->made < count || flag.buffer > 0 ? one->upto - one->made : count;
}

static int64_t when(const struct exchange *one)
{
    long next = one->is_stream ? one->made + next_of(one) : one->upto;
    return one->start + (int64_t)((flag.first + flag.period * (double)(next > 0 ? next - 1 : 0)) * one->pace * 1e6);
}

static void begin(int fd, int64_t at)
{
    struct exchange *one = &connections[fd]->now;
    active++;
    one->is_waiting = false;
    one->start = at;
    due[fd] = when(one);
}

static void finish_waiting(void)
{
    while (from_waiting != upto_waiting && active < (long)flag.slots) {
        int fd = waiting[from_waiting++ % (sizeof waiting / sizeof *waiting)];
        if (connections[fd]->is_busy && connections[fd]->now.is_waiting)
            begin(fd, now_ns());
    }
}

static void done(int fd, int status)
{
    struct connection *line = connections[fd];
    note(&line->now, status);
    leave_slot(&line->now);
    line->is_busy = false;
    line->have = 0;
    line->answers++;
    due[fd] = NEVER;
}

static void end_stream(int fd)
{
    static char out[8192];
    struct exchange *one = &connections[fd]->now;
    size_t size = one->has_head ? 0 : put_head(out, sizeof out);
    char usage[256];
    if (one->ending == CLOSED) {
        note(one, 200);
        drop(fd);
        return;
    }
    if (one->ending == FAILED) {
        const char *body = "event: error\ndata: {\"error\":{\"message\":\"the engine fell over\",\"code\":500}}\n\n";
        size += (size_t)snprintf(out + size, sizeof out - size, "%x\r\n%s\r\n", (unsigned)strlen(body), body);
    } else if (one->ending == WHOLE) {
        const char *why = one->is_aborted ? "\"abort\"" : one->total == one->upto ? "\"length\"" : "\"stop\"";
        size += put_event(out + size, sizeof out - size, one, one->is_chat ? "\"delta\":{}" : "\"text\":\"\"", why);
        if (flag.usage > 0) {
            char body[512];
            put_usage(usage, sizeof usage, one);
            int length = snprintf(body, sizeof body, "data: {\"id\":\"truth-1\",\"choices\":[],\"usage\":%s}\n\n", usage);
            size += (size_t)snprintf(out + size, sizeof out - size, "%x\r\n%s\r\n", (unsigned)length, body);
        }
        size += (size_t)snprintf(out + size, sizeof out - size, "e\r\ndata: [DONE]\n\n\r\n");
    }
    size += (size_t)snprintf(out + size, sizeof out - size, "0\r\n\r\n");
    if (say(fd, out, size))
        done(fd, 200);
}

static void whole(int fd)
{
    static char body[1 << 15], text[1 << 14];
    struct exchange *one = &connections[fd]->now;
    char usage[256];
    put_words(text, sizeof text, 0, one->upto);
    one->made = one->upto;
    tokens_out += one->made;
    put_usage(usage, sizeof usage, one);
    snprintf(body, sizeof body, "{\"id\":\"truth-1\",\"model\":\"truth\",\"choices\":[{\"index\":0,%s%s%s,\"finish_reason\":\"length\"}],\"usage\":%s}",
             one->is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"" : "\"text\":\"", text,
             one->is_chat ? "\"}" : "\"", usage);
    if (answer(fd, 200, "application/json", body)) {
        one->first = one->last = now_ns();
        done(fd, 200);
    }
}

/* What is due on a connection: one piece, or the end. */
static void step(int fd, int64_t now)
{
    static char out[16384], text[2048], inner[3072];
    struct exchange *one = &connections[fd]->now;
    if (now - due[fd] > one->late)
        one->late = now - due[fd];
    if (!one->is_stream) {
        whole(fd);
        return;
    }
    long count = next_of(one), each = flag.buffer > 0 ? 1 : count;
    if (count > 0) {
        size_t size = one->has_head ? 0 : put_head(out, sizeof out);
        long silent = one->made ? 0 : (long)flag.hidden;
        for (long upto = one->made + count; one->made < upto; silent = 0) {
            put_words(text, sizeof text, one->made + silent, each - silent);
            one->made += each;
            snprintf(inner, sizeof inner, one->is_chat ? "\"delta\":{\"%s\":\"%s\"}" : "\"%s\":\"%s\"",
                     flag.unknown > 0 ? "thought" : one->is_chat ? "content" : "text", text);
            size += put_event(out + size, sizeof out - size, one, inner, "null");
        }
        if (one->is_odd && one->made < one->upto) {
            const char *odd = "data: {\"object\":\"error\",\"message\":\"the engine fell over\",\"code\":500}\n\n";
            size += (size_t)snprintf(out + size, sizeof out - size, "%x\r\n%s\r\n", (unsigned)strlen(odd), odd);
            one->is_odd = false;
        }
        if (!say(fd, out, size))
            return;
        one->last = now_ns();
        if (!one->first)
            one->first = one->last;
        one->has_head = true;
        tokens_out += count;
    }
    if (one->made >= one->upto)
        end_stream(fd);
    else
        due[fd] = when(one);
}

static void metrics(int fd)
{
    char body[1024];
    double others = flag.tenant * (double)(now_ns() - born_ns) / 1e9;
    snprintf(body, sizeof body,
             "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{model_name=\"truth\"} %.0f\n"
             "vllm:prompt_tokens_total{model_name=\"truth\"} %ld\nvllm:num_preemptions_total{model_name=\"truth\"} 0\n"
             "process_start_time_seconds %.3f\n",
             (double)tokens_out + others, tokens_in, born);
    if (flag.cache > 0)
        snprintf(body + strlen(body), sizeof body - strlen(body), "vllm:prefix_cache_hits_total{model_name=\"truth\"} %ld\n", hits);
    answer(fd, 200, "text/plain", body);
}

static void models(int fd)
{
    char body[512];
    snprintf(body, sizeof body, "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"owned_by\":\"truth%s\"}]}", key_heard);
    answer(fd, 200, "application/json", body);
}

/* Faults of the exchange that has just been asked for; false when it is answered with one already. */
static bool befall(int fd, struct exchange *one)
{
    long n = ++requests - (long)flag.after;
    one->pace = 1.0 + flag.slower * (double)(n > 0 ? n : 0);
    one->upto = one->total;
    if (strikes(flag.fail, n)) {
        note(one, 500);
        connections[fd]->answers++;
        char body[512];
        snprintf(body, sizeof body, "{\"error\":{\"message\":\"the engine fell over%s\"}}", key_heard);
        answer(fd, 500, "application/json", body);
        return false;
    }
    if (strikes(flag.empty, n))
        one->total = one->upto = 0;
    one->is_aborted = strikes(flag.ended, n);
    one->is_odd = strikes(flag.object, n);
    if (strikes(flag.cut, n) || requests <= (long)flag.trim)
        one->upto = one->total / 2;
    one->ending = strikes(flag.half, n) ? CLOSED : strikes(flag.error, n) ? FAILED : strikes(flag.stall, n) ? STALLED : WHOLE;
    if (one->ending != WHOLE)
        one->upto = one->total / 2;
    return true;
}

static void ask(int fd, const char *body, bool is_chat)
{
    struct connection *line = connections[fd];
    struct exchange *one = &line->now;
    const char *text = behind(body, is_chat ? "\"content\":\"" : "\"prompt\":\""), *end = text ? strchr(text, '"') : NULL;
    const char *most = behind(body, "\"max_tokens\":");
    if (!end || (flag.close > 0 && line->answers >= (long)flag.close)) {
        drop(fd);
        return;
    }
    *one = (struct exchange){.is_chat = is_chat, .read = now_ns()};
    size_t size = (size_t)(end - text);
    memcpy(one->key, text, size < KEY ? size : KEY);
    one->is_stream = strstr(body, "\"stream\":true") != NULL;
    one->total = most ? atol(most) : (long)flag.length;
    one->is_counted = flag.continuous && strstr(body, "\"continuous_usage_stats\":true");
    if (one->is_counted && flag.continuous < 0) {
        line->have = 0;
        answer(fd, 400, "application/json", "{\"error\":{\"message\":\"stream_options has a word that is not known\"}}");
        return;
    }
    if (!strstr(body, "\"ignore_eos\":true") && one->total > (long)flag.length)
        one->total = (long)flag.length;
    one->input = (long)flag.template + (size ? 1 : 0);
    for (const char *at = text; at < end; at++)
        one->input += *at == ' ';
    tokens_in += one->input;
    if (flag.cache > 0)
        hits += one->cached = cached_of(text, end);
    for (long n = 0; n < (long)flag.hints && requests >= (long)flag.after; n++)
        if (!say(fd, "HTTP/1.1 103 Early Hints\r\n\r\n", 28))
            return;
    line->have = 0;
    if (!befall(fd, one))
        return;
    line->is_busy = true;
    if (flag.freeze > 0 && requests > (long)flag.freeze) {
        one->is_waiting = true;
        return;
    }
    if (flag.slots > 0 && active >= (long)flag.slots) {
        one->is_waiting = true;
        waiting[upto_waiting++ % (sizeof waiting / sizeof *waiting)] = fd;
    } else {
        begin(fd, one->read);
    }
    if (flag.role > 0 && one->is_stream && is_chat) {
        char out[1024];
        size_t used = put_head(out, sizeof out);
        used += put_event(out + used, sizeof out - used, one, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", "null");
        one->has_head = say(fd, out, used);
    }
}

static void hear(int fd)
{
    struct connection *line = connections[fd];
    ssize_t size = recv(fd, line->in + line->have, REQUEST - line->have, 0);
    if (size <= 0 || line->is_busy) {
        drop(fd);
        return;
    }
    line->have += (size_t)size;
    line->in[line->have] = 0;
    char *body = strstr(line->in, "\r\n\r\n");
    if (!body) {
        if (line->have == REQUEST)
            drop(fd);
        return;
    }
    const char *length = strcasestr(line->in, "content-length:");
    const char *key = flag.echo > 0 ? behind(line->in, "Authorization: Bearer ") : NULL;
    snprintf(key_heard, sizeof key_heard, "%.*s", key ? (int)strcspn(key, "\r\n") : 0, key ? key : "");
    size_t wanted = length && length < body ? (size_t)atol(length + 15) : 0;
    body += 4;
    if (line->have - (size_t)(body - line->in) < wanted)
        return;
    if (!strncmp(line->in, "POST /v1/chat/completions ", 26)) {
        ask(fd, body, true);
    } else if (!strncmp(line->in, "POST /v1/completions ", 21)) {
        ask(fd, body, false);
    } else {
        line->have = 0;
        if (!strncmp(line->in, "GET /v1/models ", 15))
            models(fd);
        else if (!strncmp(line->in, "GET /metrics ", 13))
            metrics(fd);
        else
            answer(fd, 404, "application/json", "{\"error\":{\"message\":\"nothing is here\"}}");
    }
}

static void welcome(int listener)
{
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= CONNECTIONS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!connections[fd])
            connections[fd] = calloc(1, sizeof **connections);
        connections[fd]->is_open = true;
        connections[fd]->is_busy = false;
        connections[fd]->have = 0;
        connections[fd]->answers = 0;
        due[fd] = NEVER;
        top = fd > top ? fd : top;
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.fd = fd});
    }
}

static int listen_on(int port)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof place;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&place, size) || listen(listener, 4096)) {
        perror("listen");
        exit(1);
    }
    getsockname(listener, (struct sockaddr *)&place, &size);
    printf("%d\n", ntohs(place.sin_port));
    fflush(stdout);
    return listener;
}

static void read_flags(int count, char **said)
{
    for (int at = 2; at < count; at++) {
        char *equals = strchr(said[at], '=');
        bool is_known = false;
        for (size_t n = 0; equals && n < sizeof known / sizeof *known; n++)
            if (strlen(known[n].name) == (size_t)(equals - said[at]) && !strncmp(known[n].name, said[at], (size_t)(equals - said[at]))) {
                *known[n].value = atof(equals + 1);
                is_known = true;
            }
        if (!is_known) {
            fprintf(stderr, "there is no flag %s\n", said[at]);
            exit(2);
        }
    }
}

static void end(int number)
{
    (void)number;
    is_ending = 1;
}

/* `truth RECORDS [FLAG=NUMBER]...`; RECORDS may be empty. The first line of output is the port. */
int main(int count, char **said)
{
    struct epoll_event found[256];
    struct timespec wall;
    int64_t armed = NEVER;
    if (count < 2)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, NULL);
    read_flags(count, said);
    records = *said[1] ? fopen(said[1], "a") : NULL;
    clock_gettime(CLOCK_REALTIME, &wall);
    born = (double)wall.tv_sec + (double)wall.tv_nsec / 1e9;
    born_ns = now_ns();
    poller = epoll_create1(EPOLL_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), listener = listen_on((int)flag.port);
    for (int fd = 0; fd < CONNECTIONS; fd++)
        due[fd] = NEVER;
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &(struct epoll_event){.events = EPOLLIN | EPOLLET, .data.fd = timer});
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN, .data.fd = listener});
    while (!is_ending) {
        int64_t now = now_ns(), next = NEVER;
        for (int fd = 0; fd <= top; fd++)
            if (due[fd] <= now)
                step(fd, now);
        for (int fd = 0; fd <= top; fd++) /* Anew: a step may have begun what waited. */
            next = due[fd] < next ? due[fd] : next;
        if (next != armed && next != NEVER) {
            struct itimerspec at = {.it_value = {next / 1000000000LL, next % 1000000000LL}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
        armed = next;
        int ready = epoll_wait(poller, found, 256, next <= now ? 0 : 1000);
        for (int n = 0; n < ready; n++) {
            int fd = found[n].data.fd;
            if (fd == listener)
                welcome(listener);
            else if (fd != timer && connections[fd]->is_open)
                hear(fd);
        }
    }
    if (records)
        fclose(records);
    return 0;
}
