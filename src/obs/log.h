/*
 * Log: one JSON object per line on stderr, or readable text on a terminal.
 *
 *     obs_log(lg, OBS_INFO, "torn_tail", OBS_STR("file", name), OBS_U64("bytes", n), OBS_ERR(e), OBS_END);
 *
 * Line: ts level service task event, then the fields in the order given. Fields are evaluated only when the
 * level is on. Nothing secret is written: a field whose key holds the word token, authorization, secret,
 * cookie, password or key reads "[redacted]",
 * and so does anything inside a value that looks like a macaroon or follows "Bearer ".
 * A line is one write(2) of at most OBS_LINE_MAX bytes, so lines of many threads never mix. When the reader
 * of a pipe does not keep up, lines are lost and counted, requests are not held up. The same event with the
 * same level and error is written at most dup_per_s times a second; the next one written afterwards says
 * how many were suppressed.
 *
 * Ownership   The logger borrows the service name and the clock.
 * Threads     Every function, from any thread; no lock is taken and none may matter to the caller.
 * Memory      Nothing allocates after obs_log_create.
 */
#ifndef RON_OBS_LOG_H
#define RON_OBS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"

enum {
    OBS_LINE_MAX = 4096,
    OBS_LOG_VALUE_MAX = 1024
}; /* 4096 = PIPE_BUF: longer writes to a pipe may be torn apart */

enum obs_level { OBS_DEBUG, OBS_INFO, OBS_WARN, OBS_ERROR, OBS_OFF };
enum obs_log_format { OBS_LOG_AUTO, OBS_LOG_JSON, OBS_LOG_TEXT };

struct obs_log_config {
    const char *service;
    enum obs_level level;
    enum obs_log_format format; /* AUTO: text when fd is a terminal */
    int fd;                     /* usually 2; never closed */
    unsigned dup_per_s;         /* 0: no limit */
    const struct clock *clock;
};

struct obs_log;

NODISCARD enum err obs_log_create(const struct obs_log_config *cfg, struct obs_log **out_lg);
void obs_log_destroy(struct obs_log *lg);

void obs_log_set_level(struct obs_log *lg, enum obs_level level);
enum obs_level obs_log_level(const struct obs_log *lg);
NODISCARD enum err obs_level_parse(struct str s,
                                   enum obs_level *out); /* debug info warn error off; ERR_SYNTAX */
const char *obs_level_name(enum obs_level level);

/* The name that lines of this thread carry as "task"; borrowed, NULL for none. A task sets it when it
 * starts. */
void obs_log_set_task(const char *name);

uint64_t obs_log_lost(const struct obs_log *lg); /* lines lost because the reader did not keep up */

enum obs_field_kind { OBS_F_END, OBS_F_STR, OBS_F_U64, OBS_F_I64, OBS_F_F64, OBS_F_BOOL, OBS_F_ERR };

struct obs_field {
    enum obs_field_kind kind;
    const char *key;
    union {
        struct str s;
        uint64_t u;
        int64_t i;
        double d;
        bool b;
        enum err e;
    } v;
};

static inline struct obs_field obs_field_str(const char *key, struct str s)
{
    return (struct obs_field){.kind = OBS_F_STR, .key = key, .v.s = s};
}

static inline struct obs_field obs_field_c(const char *key, const char *c)
{
    return obs_field_str(key, str_from_c(c));
}

/* OBS_STR takes a struct str or a C string. */
#define OBS_STR(key, value)                                                                                \
    _Generic((value), struct str : obs_field_str, char * : obs_field_c, const char * : obs_field_c)(key, value)
#define OBS_U64(key, value)  ((struct obs_field){OBS_F_U64, key, {.u = (value)}})
#define OBS_I64(key, value)  ((struct obs_field){OBS_F_I64, key, {.i = (value)}})
#define OBS_F64(key, value)  ((struct obs_field){OBS_F_F64, key, {.d = (value)}})
#define OBS_BOOL(key, value) ((struct obs_field){OBS_F_BOOL, key, {.b = (value)}})
#define OBS_ERR(value)       ((struct obs_field){OBS_F_ERR, "err", {.e = (value)}})
#define OBS_CORR(value)      OBS_STR("corr_id", value)
#define OBS_END              ((struct obs_field){OBS_F_END, NULL, {.u = 0}})

/* The last field is OBS_END. lg may be NULL: nothing is written. */
#define obs_log(lg, level, event, ...)                                                                     \
    do {                                                                                                   \
        if (obs_log_enabled(lg, level))                                                                    \
            obs_log_write(lg, level, event, (const struct obs_field[]){__VA_ARGS__});                      \
    } while (0)

bool obs_log_enabled(const struct obs_log *lg, enum obs_level level);
void obs_log_write(struct obs_log *lg, enum obs_level level, const char *event,
                   const struct obs_field *fields);

/* Whether a field of this name is never written; also what a config diff asks. */
bool obs_redacts_key(struct str key);

#endif
