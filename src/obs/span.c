/*
 * The queue is a bounded array of cells with a turn number each (Vyukov's bounded queue): a thread that
 * wants to write cell i of lap n waits for nothing, it sees at once whether the cell is free; when it is
 * not, the span is lost and counted.
 */
#include "obs/span.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/rng.h"

enum { TRACER_MAGIC = 0x54524143, CACHE_LINE = 64 };

/*
 * A lap is a multiple of the number of cells, so that all cells begin with zero: memory that no span ever reached is never touched.
 */
struct cell {
    _Atomic size_t
        turn; /* lap: free for this lap's write; lap + 1: holds it. release after the copy, acquire before it */
    struct obs_span span;
};

struct obs_tracer {
    unsigned magic;
    const struct clock *clock;
    _Atomic unsigned sample_ppm; /* relaxed: changes with the configuration */
    uint64_t seed;
    size_t mask;
    struct cell *cell;
    _Alignas(CACHE_LINE) _Atomic size_t head; /* relaxed: the cell's turn orders the data */
    _Alignas(CACHE_LINE) _Atomic size_t tail; /* relaxed, likewise */
    _Alignas(CACHE_LINE) _Atomic int all;     /* relaxed */
    _Atomic uint64_t lost, queued, threads;   /* relaxed */
};

/* --- trace context --- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_read(const char *p, uint8_t *out, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++) {
        int hi = hex_digit(p[2 * i]), lo = hex_digit(p[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (uint8_t)(hi << 4 | lo);
        any |= out[i];
    }
    return any != 0;
}

enum err obs_traceparent_parse(struct str header, struct obs_trace *out)
{
    struct obs_trace t;
    uint8_t version = 0, flags = 0;
    if (header.n < 55 || header.p[2] != '-' || header.p[35] != '-' || header.p[52] != '-')
        return ERR_SYNTAX;
    hex_read(header.p, &version, 1);
    if (hex_digit(header.p[0]) < 0 || hex_digit(header.p[1]) < 0 || version == 0xff)
        return ERR_SYNTAX;
    /* Version 00 is exactly 55 characters; later ones may add fields after a dash. */
    if (header.n > 55 && (version == 0 || header.p[55] != '-'))
        return ERR_SYNTAX;
    if (!hex_read(header.p + 3, t.trace_id, 16) || !hex_read(header.p + 36, t.span_id, 8))
        return ERR_SYNTAX;
    hex_read(header.p + 53, &flags, 1);
    if (hex_digit(header.p[53]) < 0 || hex_digit(header.p[54]) < 0)
        return ERR_SYNTAX;
    t.sampled = flags & 1;
    *out = t;
    return ERR_OK;
}

void obs_traceparent_format(const struct obs_trace *t, char out[OBS_TRACEPARENT_CHARS])
{
    memcpy(out, "00-", 3);
    hex_encode(t->trace_id, 16, out + 3);
    out[35] = '-';
    hex_encode(t->span_id, 8, out + 36);
    memcpy(out + 52, t->sampled ? "-01" : "-00", 4);
}

/* --- spans --- */

enum err obs_tracer_create(const struct obs_tracer_config *cfg, struct obs_tracer **out)
{
    size_t cap = 2;
    while (cap < cfg->capacity)
        cap *= 2;
    struct obs_tracer *t = aligned_alloc(CACHE_LINE, sizeof *t);
    struct cell *cell = calloc(cap, sizeof *cell);
    if (!t || !cell) {
        free(t);
        free(cell);
        return ERR_NO_MEMORY;
    }
    memset(t, 0, sizeof *t);
    t->magic = TRACER_MAGIC;
    t->clock = cfg->clock;
    atomic_init(&t->sample_ppm, cfg->sample_ppm);
    t->seed = cfg->seed;
    t->mask = cap - 1;
    t->cell = cell;
    *out = t;
    return ERR_OK;
}

void obs_tracer_destroy(struct obs_tracer *t)
{
    if (!t)
        return;
    CHECK_MAGIC(t, TRACER_MAGIC);
    t->magic = 0;
    free(t->cell);
    free(t);
}

void obs_tracer_set_sample(struct obs_tracer *t, unsigned ppm)
{
    atomic_store_explicit(&t->sample_ppm, ppm, memory_order_relaxed);
}

void obs_tracer_sample_all(struct obs_tracer *t, bool on)
{
    atomic_store_explicit(&t->all, on, memory_order_relaxed);
}

/* Ids need to be unique, not secret: one generator per thread, seeded by the kernel (or by the test). */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    struct rng rng;
    struct obs_tracer *seeded_for;
    bool seeded;
} ids;

static __attribute__((noinline, cold)) void seed_ids(struct obs_tracer *t)
{
    uint64_t seed = t && t->seed ? t->seed + atomic_fetch_add_explicit(&t->threads, 1, memory_order_relaxed)
                                 : rng_secure_u64();
    rng_seed(&ids.rng, seed);
    ids.seeded = true;
    ids.seeded_for = t;
}

static struct rng *thread_rng(struct obs_tracer *t)
{
    if (!ids.seeded || (t && t->seed && ids.seeded_for != t))
        seed_ids(t);
    return &ids.rng;
}

/* Eight bytes of an id, never all zero. */
static void fill_id(struct rng *r, uint8_t id[8])
{
    uint64_t bits = rng_u64(r);
    memcpy(id, &bits, sizeof bits);
    id[7] |= 1;
}

static unsigned sample_ppm(struct obs_tracer *t)
{
    return atomic_load_explicit(&t->sample_ppm, memory_order_relaxed);
}

/* A new trace is sampled or not by its id, which is as random as anything we could draw for it. */
static bool id_sampled(struct obs_tracer *t, const uint8_t id[16])
{
    uint64_t bits;
    memcpy(&bits, id, sizeof bits);
    return (uint64_t)((unsigned __int128)bits * 1000000 >> 64) < sample_ppm(t);
}

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    const struct obs_tracer *drawn_for;
    unsigned drawn_ppm;
    uint64_t left;
} gap; /* to the next trace that is sampled; initial-exec: one that is not does little else than look here */

/* How many new traces are left out before the next one is sampled, had each been drawn for itself (geometric distribution). */
static uint64_t draw_gap(struct obs_tracer *t, unsigned ppm)
{
    if (ppm == 0)
        return UINT64_MAX;
    return (uint64_t)(log(1 - rng_unit(thread_rng(t))) / log1p(-(double)ppm / 1000000));
}

static __attribute__((noinline, cold)) bool gap_ends(struct obs_tracer *t, unsigned ppm)
{
    bool over = gap.drawn_for == t && gap.drawn_ppm == ppm;
    if (!over) {
        gap.drawn_for = t;
        gap.drawn_ppm = ppm;
        gap.left = draw_gap(t, ppm);
        over = gap.left == 0;
    }
    gap.left = over ? draw_gap(t, ppm) : gap.left - 1;
    return over;
}

static bool gap_is_over(struct obs_tracer *t)
{
    unsigned ppm = sample_ppm(t);
    if (gap.left == 0 || gap.drawn_for != t || gap.drawn_ppm != ppm)
        return gap_ends(t, ppm);
    gap.left--;
    return false;
}

static bool has_trace(const struct obs_trace *t)
{
    static const uint8_t zero[16];
    return t && memcmp(t->trace_id, zero, 16) != 0;
}

bool obs_tracer_draw(struct obs_tracer *t, const struct obs_trace *parent)
{
    if (!t)
        return false;
    if (atomic_load_explicit(&t->all, memory_order_relaxed))
        return true;
    return has_trace(parent) ? parent->sampled : gap_is_over(t);
}

/* All of a new span but when it began. */
static void name_span(struct obs_tracer *t, const struct obs_trace *parent, const char *name,
                      struct obs_span *out)
{
    struct rng *r = thread_rng(t);
    out->name = name;
    out->n_attrs = 0;
    out->err = ERR_OK;
    out->end_unix_ns = 0;
    if (has_trace(parent)) {
        memcpy(out->self.trace_id, parent->trace_id, 16);
        memcpy(out->parent_id, parent->span_id, 8);
        out->self.sampled = parent->sampled;
    } else {
        fill_id(r, out->self.trace_id);
        fill_id(r, out->self.trace_id + 8);
        memset(out->parent_id, 0, 8);
        out->self.sampled = t && id_sampled(t, out->self.trace_id);
    }
    fill_id(r, out->self.span_id);
    if (!t)
        out->self.sampled = false;
    else if (atomic_load_explicit(&t->all, memory_order_relaxed))
        out->self.sampled = true;
}

struct obs_moment obs_tracer_now(const struct obs_tracer *t)
{
    return (struct obs_moment){clock_mono_ns(t->clock), clock_wall_ms(t->clock) * 1000000};
}

void obs_span_begin(struct obs_tracer *t, const struct obs_trace *parent, const char *name,
                    struct obs_span *out)
{
    name_span(t, parent, name, out);
    if (!out->self.sampled)
        return;
    struct obs_moment now = obs_tracer_now(t);
    out->start_mono_ns = now.mono_ns;
    out->start_unix_ns = now.unix_ns;
}

void obs_span_begin_at(struct obs_tracer *t, const struct obs_trace *parent, const char *name,
                       const struct obs_moment *now, int64_t mono_ns, struct obs_span *out)
{
    name_span(t, parent, name, out);
    out->start_mono_ns = mono_ns;
    out->start_unix_ns = now->unix_ns - (now->mono_ns - mono_ns);
}

static struct obs_attr *next_attr(struct obs_span *s, const char *key)
{
    if (!s->self.sampled || s->n_attrs == OBS_ATTRS_MAX)
        return NULL;
    struct obs_attr *a = &s->attrs[s->n_attrs++];
    a->key = key;
    return a;
}

void obs_span_text(struct obs_span *s, const char *key, struct str value)
{
    struct obs_attr *a = next_attr(s, key);
    if (!a)
        return;
    size_t n = value.n < sizeof a->text - 1 ? value.n : sizeof a->text - 1;
    while (n < value.n && n > 0 && ((unsigned char)value.p[n] & 0xc0) == 0x80)
        n--; /* do not cut a UTF-8 sequence */
    memcpy(a->text, value.p, n);
    a->text[n] = '\0';
    a->is_text = true;
}

void obs_span_u64(struct obs_span *s, const char *key, uint64_t value)
{
    struct obs_attr *a = next_attr(s, key);
    if (!a)
        return;
    a->is_text = false;
    a->number = value;
}

/* Of the attributes only those that are there: most of a span is room for more of them. */
static void copy_span(struct obs_span *to, const struct obs_span *from)
{
    memcpy(to, from, offsetof(struct obs_span, attrs) + from->n_attrs * sizeof from->attrs[0]);
}

static bool enqueue(struct obs_tracer *t, const struct obs_span *s)
{
    size_t at = atomic_load_explicit(&t->tail, memory_order_relaxed);
    for (;;) {
        struct cell *c = &t->cell[at & t->mask];
        size_t turn = atomic_load_explicit(&c->turn, memory_order_acquire), lap = at & ~t->mask;
        if (turn == lap) {
            if (atomic_compare_exchange_weak_explicit(&t->tail, &at, at + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                copy_span(&c->span, s);
                atomic_store_explicit(&c->turn, lap + 1, memory_order_release);
                return true;
            }
        } else if (turn < lap) {
            return false; /* still holds a span of the previous lap: full */
        } else {
            at = atomic_load_explicit(&t->tail, memory_order_relaxed);
        }
    }
}

void obs_span_end(struct obs_tracer *t, struct obs_span *s, enum err err)
{
    if (t && s->self.sampled)
        obs_span_end_at(t, s, clock_mono_ns(t->clock), err);
}

void obs_span_end_at(struct obs_tracer *t, struct obs_span *s, int64_t mono_ns, enum err err)
{
    if (!t || !s->self.sampled)
        return;
    s->err = err;
    s->end_unix_ns = s->start_unix_ns + (mono_ns - s->start_mono_ns);
    atomic_fetch_add_explicit(&t->queued, 1, memory_order_relaxed);
    if (!enqueue(t, s))
        atomic_fetch_add_explicit(&t->lost, 1, memory_order_relaxed);
}

size_t obs_tracer_take(struct obs_tracer *t, struct obs_span *out, size_t max)
{
    CHECK_MAGIC(t, TRACER_MAGIC);
    size_t n = 0;
    size_t at = atomic_load_explicit(&t->head, memory_order_relaxed);
    while (n < max) {
        struct cell *c = &t->cell[at & t->mask];
        size_t turn = atomic_load_explicit(&c->turn, memory_order_acquire), lap = at & ~t->mask;
        if (turn == lap + 1) {
            if (atomic_compare_exchange_weak_explicit(&t->head, &at, at + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                copy_span(&out[n++], &c->span);
                atomic_store_explicit(&c->turn, lap + t->mask + 1, memory_order_release);
                at++;
            }
        } else if (turn <= lap) {
            break; /* not written yet */
        } else {
            at = atomic_load_explicit(&t->head, memory_order_relaxed);
        }
    }
    return n;
}

uint64_t obs_tracer_lost(const struct obs_tracer *t)
{
    return atomic_load_explicit(&t->lost, memory_order_relaxed);
}

uint64_t obs_tracer_queued(const struct obs_tracer *t)
{
    return atomic_load_explicit(&t->queued, memory_order_relaxed);
}
