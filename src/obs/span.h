/*
 * Traces: W3C trace context in, OTLP/HTTP JSON out, and a bounded queue between them that loses rather than
 * waits.
 *
 * A span lives on the caller's stack (or in its job) from obs_span_begin to obs_span_end. A trace that is
 * not sampled costs a few instructions: ids are still made and passed on, nothing is queued. Sampling is
 * decided once per trace, by the caller's `sampled` flag if it sent one, else one in a hundred; in safe
 * mode everything is sampled.
 *
 * Ownership   obs_span_end copies the span into the queue. Names and attribute keys are borrowed
 *             (string literals); attribute texts are copied, cut to OBS_ATTR_TEXT_MAX - 1 bytes.
 * Threads     begin, end and take from any thread, lock-free; one span belongs to one thread at a time.
 * Memory      The queue is allocated by obs_tracer_create; nothing after that allocates.
 * Order       Spans are taken in the order they ended, per thread.
 */
#ifndef RON_OBS_SPAN_H
#define RON_OBS_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_write.h"

enum { OBS_ATTRS_MAX = 8, OBS_ATTR_TEXT_MAX = 64, OBS_TRACEPARENT_CHARS = 56 };

/* Who we are in a trace: what a traceparent header says. All zero: no trace. */
struct obs_trace {
    uint8_t trace_id[16], span_id[8];
    bool sampled;
};

/* ERR_SYNTAX on anything that W3C Trace Context 1 §3.2 does not allow, zero ids included. */
NODISCARD enum err obs_traceparent_parse(struct str header, struct obs_trace *out);
void obs_traceparent_format(const struct obs_trace *t, char out[OBS_TRACEPARENT_CHARS]);

struct obs_attr {
    const char *key;
    bool is_text;
    uint64_t number;
    char text[OBS_ATTR_TEXT_MAX];
};

struct obs_span {
    struct obs_trace self;
    uint8_t parent_id[8]; /* zero: root */
    const char *name;
    int64_t start_mono_ns, start_unix_ns, end_unix_ns;
    enum err err;
    size_t n_attrs;
    struct obs_attr attrs[OBS_ATTRS_MAX];
};

struct obs_tracer_config {
    const struct clock *clock;
    size_t capacity;     /* spans waiting to be sent; rounded up to a power of two */
    unsigned sample_ppm; /* 10000 = 1 % */
    uint64_t seed;       /* 0: from the kernel */
};

struct obs_tracer;

NODISCARD enum err obs_tracer_create(const struct obs_tracer_config *cfg, struct obs_tracer **out);
void obs_tracer_destroy(struct obs_tracer *t);
void obs_tracer_set_sample(struct obs_tracer *t, unsigned ppm);
void obs_tracer_sample_all(struct obs_tracer *t, bool on); /* safe mode */

/* Whether a trace is sampled that goes on below parent (NULL or all zero: begins here), for who makes ids only for those that are:
 * a subtraction, and a random number for each that is. obs_span_begin decides anew; what it made is sampled when the caller says so. */
bool obs_tracer_draw(struct obs_tracer *t, const struct obs_trace *parent);

/* Starts a span below parent (NULL or all zero: a new trace). t may be NULL: the span is then never
 * sampled. */
void obs_span_begin(struct obs_tracer *t, const struct obs_trace *parent, const char *name,
                    struct obs_span *out);
void obs_span_text(struct obs_span *s, const char *key,
                   struct str value); /* attributes over OBS_ATTRS_MAX are ignored */
void obs_span_u64(struct obs_span *s, const char *key, uint64_t value);
void obs_span_end(struct obs_tracer *t, struct obs_span *s, enum err err);

/*
 * Spans that are over when they are written, between readings of the tracer's monotonic clock that were noted on the way: both
 * clocks are read once for all of them.
 */
struct obs_moment {
    int64_t mono_ns, unix_ns;
};
struct obs_moment obs_tracer_now(const struct obs_tracer *t);
void obs_span_begin_at(struct obs_tracer *t, const struct obs_trace *parent, const char *name,
                       const struct obs_moment *now, int64_t mono_ns, struct obs_span *out);
void obs_span_end_at(struct obs_tracer *t, struct obs_span *s, int64_t mono_ns, enum err err);

size_t obs_tracer_take(struct obs_tracer *t, struct obs_span *out, size_t max); /* how many were there */
uint64_t obs_tracer_lost(const struct obs_tracer *t);
uint64_t
obs_tracer_queued(const struct obs_tracer *t); /* ended and sampled since the start, lost ones included */

/*
 * One ExportTraceServiceRequest in the JSON encoding of OTLP 1.x: begin, any number of spans, end. Errors stick in out->err;
 * a caller that stops at a size looks at out->n between spans.
 */
void obs_otlp_begin(struct json_w *w, const char *service, const char *version, struct buf *out);
void obs_otlp_span(struct json_w *w, const struct obs_span *s);
void obs_otlp_end(struct json_w *w);

#endif
