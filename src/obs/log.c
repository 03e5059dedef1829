/*
 * Line building, redaction, duplicate limiting.
 *
 * A line is built on the stack and leaves with one write(2). Before writing to anything but a regular file,
 * poll(2) asks whether the line would fit: a pipe reports room only when PIPE_BUF bytes fit, and no line is
 * longer, so a reader that stopped reading costs lines and never a request.
 *
 * Duplicates: a small table of (hash of level, event and error; second; count). Slots are overwritten on
 * collision, so two events that share a slot may each get a little more than their allowance; that is
 * harmless, and it needs no lock.
 */
#include "obs/log.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/time_fmt.h"

enum { LOG_MAGIC = 0x4c4f4753, DUP_SLOTS = 256, MACAROON_CHARS_MIN = 40 };

/* key 32 bits | second 16 bits | count 16 bits: one word, so a slot changes as a whole. */
struct dup_slot {
    _Atomic uint64_t word; /* relaxed: an approximate limit is enough */
};

struct obs_log {
    unsigned magic;
    const char *service;
    const struct clock *clock;
    int fd;
    bool text, check_room;
    unsigned dup_per_s;
    _Atomic int level;     /* relaxed: a new level takes effect soon */
    _Atomic uint64_t lost; /* relaxed */
    struct dup_slot dup[DUP_SLOTS];
};

static _Thread_local const char *task_name;

static const char *const level_names[] = {"debug", "info", "warn", "error", "off"};

const char *obs_level_name(enum obs_level level)
{
    CHECK((unsigned)level <= OBS_OFF);
    return level_names[level];
}

enum err obs_level_parse(struct str s, enum obs_level *out)
{
    for (int i = OBS_DEBUG; i <= OBS_OFF; i++)
        if (str_eq(s, str_from_c(level_names[i]))) {
            *out = (enum obs_level)i;
            return ERR_OK;
        }
    return ERR_SYNTAX;
}

enum err obs_log_create(const struct obs_log_config *cfg, struct obs_log **out_lg)
{
    struct obs_log *lg = calloc(1, sizeof *lg);
    if (!lg)
        return ERR_NO_MEMORY;
    struct stat st;
    lg->magic = LOG_MAGIC;
    lg->service = cfg->service;
    lg->clock = cfg->clock ? cfg->clock : clock_real();
    lg->fd = cfg->fd;
    lg->text = cfg->format == OBS_LOG_TEXT || (cfg->format == OBS_LOG_AUTO && isatty(cfg->fd));
    lg->check_room = fstat(cfg->fd, &st) == 0 && !S_ISREG(st.st_mode);
    lg->dup_per_s = cfg->dup_per_s;
    atomic_store_explicit(&lg->level, (int)cfg->level, memory_order_relaxed);
    *out_lg = lg;
    return ERR_OK;
}

void obs_log_destroy(struct obs_log *lg)
{
    if (!lg)
        return;
    CHECK_MAGIC(lg, LOG_MAGIC);
    lg->magic = 0;
    free(lg);
}

void obs_log_set_level(struct obs_log *lg, enum obs_level level)
{
    CHECK_MAGIC(lg, LOG_MAGIC);
    CHECK((unsigned)level <= OBS_OFF);
    atomic_store_explicit(&lg->level, (int)level, memory_order_relaxed);
}

enum obs_level obs_log_level(const struct obs_log *lg)
{
    return (enum obs_level)atomic_load_explicit(&lg->level, memory_order_relaxed);
}

bool obs_log_enabled(const struct obs_log *lg, enum obs_level level)
{
    return lg && level != OBS_OFF && level >= obs_log_level(lg);
}

void obs_log_set_task(const char *name)
{
    task_name = name;
}

uint64_t obs_log_lost(const struct obs_log *lg)
{
    return atomic_load_explicit(&lg->lost, memory_order_relaxed);
}

/* --- redaction --- */

static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

static bool word_is_secret(const char *p, size_t n)
{
    static const char *const words[] = {"token",  "tokens",   "authorization", "secret", "secrets",
                                        "cookie", "password", "key",           "keys"};
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
        size_t i = 0;
        while (i < n && words[w][i] && lower(p[i]) == words[w][i])
            i++;
        if (i == n && !words[w][i])
            return true;
    }
    return false;
}

bool obs_redacts_key(struct str key)
{
    for (size_t from = 0, at = 0; at <= key.n; at++)
        if (at == key.n || key.p[at] == '_' || key.p[at] == '-' || key.p[at] == '.') {
            if (word_is_secret(key.p + from, at - from))
                return true;
            from = at + 1;
        }
    return false;
}

static bool is_base64(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '-' || c == '_' || c == '=';
}

/* How many bytes at s hide a token: a serialised macaroon (version 1 starts with "MD", 2 with "Ag"), or
 * what follows "Bearer ". */
static size_t secret_span(struct str s)
{
    if (str_starts(s, STR("Bearer ")) || str_starts(s, STR("bearer "))) {
        size_t n = 7;
        while (n < s.n && (is_base64(s.p[n]) || s.p[n] == '.' || s.p[n] == '~'))
            n++;
        return n > 7 ? n : 0;
    }
    if (!str_starts(s, STR("MD")) && !str_starts(s, STR("Ag")))
        return 0;
    size_t n = 0;
    while (n < s.n && is_base64(s.p[n]))
        n++;
    return n >= MACAROON_CHARS_MIN ? n : 0;
}

/* --- the line --- */

/* Keeps room for the closing ',"truncated":true}\n'. */
struct line {
    char p[OBS_LINE_MAX];
    size_t n;
    bool full;
};
enum { LINE_TAIL = 24 };

static void put(struct line *l, const char *p, size_t n)
{
    if (l->full || n > sizeof l->p - LINE_TAIL - l->n) {
        l->full = true;
        return;
    }
    memcpy(l->p + l->n, p, n);
    l->n += n;
}

static void puts_(struct line *l, const char *c)
{
    put(l, c, strlen(c));
}

/* Length of the valid UTF-8 sequence at p, 0 when there is none (RFC 3629: no surrogates, nothing
 * overlong). */
static size_t utf8_len(const unsigned char *p, size_t n)
{
    size_t need = p[0] < 0x80                   ? 1
                  : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
                  : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                  : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                                : 0;
    if (need == 0 || need > n)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return need;
}

static void put_char(struct line *l, const char *p, size_t n)
{
    char esc[8];
    unsigned char c = (unsigned char)p[0];
    if (c == '"' || c == '\\') {
        esc[0] = '\\';
        esc[1] = (char)c;
        put(l, esc, 2);
    } else if (c < 0x20 || c == 0x7f) {
        put(l, esc, (size_t)snprintf(esc, sizeof esc, "\\u%04x", (unsigned)c));
    } else {
        put(l, p, n);
    }
}

static void put_value(struct line *l, struct str s)
{
    bool cut = s.n > OBS_LOG_VALUE_MAX;
    if (cut)
        s.n = OBS_LOG_VALUE_MAX;
    bool word_start = true;
    for (size_t i = 0; i < s.n;) {
        size_t hide = word_start ? secret_span(str_of(s.p + i, s.n - i)) : 0;
        if (hide) {
            puts_(l, "[redacted]");
            i += hide;
            word_start = false;
            continue;
        }
        word_start = !is_base64(s.p[i]) || s.p[i] == '=';
        size_t len = utf8_len((const unsigned char *)s.p + i, s.n - i);
        if (len)
            put_char(l, s.p + i, len);
        else
            puts_(l, "\xef\xbf\xbd"); /* U+FFFD */
        i += len ? len : 1;
    }
    if (cut)
        puts_(l, "...");
}

static void put_json_str(struct line *l, struct str s)
{
    puts_(l, "\"");
    put_value(l, s);
    puts_(l, "\"");
}

static bool plain_word(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= 0x20 || s.p[i] == '"' || s.p[i] == '=')
            return false;
    return s.n > 0;
}

static void put_field_value(struct line *l, const struct obs_field *f, bool text)
{
    char n[48];
    switch (f->kind) {
    case OBS_F_STR:
        if (obs_redacts_key(str_from_c(f->key)))
            puts_(l, text ? "[redacted]" : "\"[redacted]\"");
        else if (!f->v.s.p)
            puts_(l, text ? "-" : "null");
        else if (text && plain_word(f->v.s))
            put_value(l, f->v.s);
        else
            put_json_str(l, f->v.s);
        return;
    case OBS_F_U64:
        snprintf(n, sizeof n, "%llu", (unsigned long long)f->v.u);
        break;
    case OBS_F_I64:
        snprintf(n, sizeof n, "%lld", (long long)f->v.i);
        break;
    case OBS_F_F64:
        if (!__builtin_isfinite(f->v.d))
            strcpy(n, "null");
        else
            snprintf(n, sizeof n, "%.9g", f->v.d);
        break;
    case OBS_F_BOOL:
        strcpy(n, f->v.b ? "true" : "false");
        break;
    case OBS_F_ERR:
        snprintf(n, sizeof n, text ? "%s" : "\"%s\"", err_name(f->v.e));
        break;
    case OBS_F_END:
        UNREACHABLE();
    }
    puts_(l, n);
}

/* A field goes in whole or not at all, so that a cut line is still a JSON object. */
static void put_field(struct line *l, const struct obs_field *f, bool text)
{
    if (l->full)
        return;
    size_t before = l->n;
    puts_(l, text ? " " : ",\"");
    puts_(l, f->key);
    puts_(l, text ? "=" : "\":");
    put_field_value(l, f, text);
    if (l->full)
        l->n = before;
}

static void build_line(const struct obs_log *lg, struct line *l, enum obs_level level, const char *event,
                       const struct obs_field *fields, unsigned suppressed)
{
    char ts[TIME_FMT_CHARS];
    time_format_ms(clock_wall_ms(lg->clock), ts);
    struct obs_field head[] = {OBS_STR("level", obs_level_name(level)), OBS_STR("service", lg->service),
                               OBS_STR("task", task_name), OBS_STR("event", event)};
    if (lg->text) {
        char start[160];
        snprintf(start, sizeof start, "%s %-5s %s%s%s %s", ts + 11, obs_level_name(level), lg->service,
                 task_name ? "/" : "", task_name ? task_name : "", event);
        puts_(l, start);
    } else {
        puts_(l, "{\"ts\":\"");
        puts_(l, ts);
        puts_(l, "\"");
        for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
            if (head[i].v.s.p)
                put_field(l, &head[i], false);
    }
    if (suppressed)
        put_field(l, &OBS_U64("suppressed", suppressed), lg->text);
    for (const struct obs_field *f = fields; f->kind != OBS_F_END; f++)
        put_field(l, f, lg->text);
    const char *tail =
        lg->text ? (l->full ? " truncated=true\n" : "\n") : (l->full ? ",\"truncated\":true}\n" : "}\n");
    size_t n = strlen(tail);
    CHECK(n <= LINE_TAIL);
    memcpy(l->p + l->n, tail, n);
    l->n += n;
}

/* --- duplicates --- */

static uint32_t dup_key(enum obs_level level, const char *event, const struct obs_field *fields)
{
    uint32_t h = 2166136261u ^ (uint32_t)level;
    for (const char *p = event; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    for (const struct obs_field *f = fields; f->kind != OBS_F_END; f++)
        if (f->kind == OBS_F_ERR)
            h = (h ^ (uint32_t)f->v.e) * 16777619u;
    return h | 1;
}

/* False: over this second's allowance. out_suppressed: how many of the slot's previous second were. */
static bool dup_allows(struct obs_log *lg, uint32_t key, unsigned *out_suppressed)
{
    *out_suppressed = 0;
    if (lg->dup_per_s == 0)
        return true;
    struct dup_slot *slot = &lg->dup[key % DUP_SLOTS];
    uint64_t second = (uint64_t)(clock_mono_ns(lg->clock) / 1000000000) & 0xffff;
    uint64_t seen = atomic_load_explicit(&slot->word, memory_order_relaxed), next;
    do {
        bool same_key = seen >> 32 == key, same_second = (seen >> 16 & 0xffff) == second;
        uint64_t count = seen & 0xffff;
        *out_suppressed =
            same_key && !same_second && count > lg->dup_per_s ? (unsigned)(count - lg->dup_per_s) : 0;
        count = same_key && same_second ? (count < 0xffff ? count + 1 : count) : 1;
        next = (uint64_t)key << 32 | second << 16 | count;
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &seen, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return (next & 0xffff) <= lg->dup_per_s;
}

static bool has_room(const struct obs_log *lg)
{
    struct pollfd p = {.fd = lg->fd, .events = POLLOUT};
    return !lg->check_room || poll(&p, 1, 0) == 1;
}

void obs_log_write(struct obs_log *lg, enum obs_level level, const char *event,
                   const struct obs_field *fields)
{
    CHECK_MAGIC(lg, LOG_MAGIC);
    unsigned suppressed;
    if (!dup_allows(lg, dup_key(level, event, fields), &suppressed))
        return;
    struct line l;
    l.n = 0;
    l.full = false;
    build_line(lg, &l, level, event, fields, suppressed);
    ssize_t n = -1;
    if (has_room(lg)) {
        do
            n = write(lg->fd, l.p, l.n);
        while (n < 0 && errno == EINTR);
    }
    if (n != (ssize_t)l.n)
        atomic_fetch_add_explicit(&lg->lost, 1, memory_order_relaxed);
}
