/* What the files of the worker pool share. */
#ifndef RON_REWARDER_TASKS_WORKER_H
#define RON_REWARDER_TASKS_WORKER_H

#include "services/rewarder/rewarder.h"

/* The calling worker's own way to ask the ledger; NULL: no memory. */
struct rewarder_settler *rewarder_worker_reader(struct rewarder *r, struct rt_task *self);
struct rewarder_fetched {
    int status;
    unsigned again; /* tries after the first */
};
/* GET with three tries; ERR_OK whenever a whole response came. */
NODISCARD enum err rewarder_worker_fetch(const char *url, const char *const *headers, struct deadline by,
                                         size_t max, struct rewarder_fetched *out,
                                         struct buf *out_body) RT_BLOCKS;

struct rewarder_snapshot;
struct rewarder_snapshot_error;
void rewarder_worker_describe(const struct rewarder_snapshot *s, struct rewarder_input *in);

/* The rows a run is computed from: rewarder_file_unload(&in->file) when done. */
struct rewarder_inputs {
    struct rewarder_file file;
    struct rewarder_rows rows;
};
/* Why inputs were refused. */
struct rewarder_trouble {
    const char *detail;                /* static text, or NULL */
    char details[REWARDER_TEXT_CHARS]; /* JSON object, or "" */
};
/* The details of a snapshot that was refused, or of one that is not what it was said to be. */
void rewarder_worker_tell_snapshot(enum err e, const struct rewarder_snapshot_error *why, uint64_t rows_max,
                                   struct rewarder_trouble *out);
void rewarder_worker_tell_digest(const struct sha256 *expected, const struct sha256 *actual,
                                 struct rewarder_trouble *out);
/* *why is filled in when it fails; in->file must be unloaded also then. */
NODISCARD enum err rewarder_worker_inputs(struct rewarder *r, struct rt_task *self,
                                          struct rewarder_item *it, struct rewarder_inputs *in,
                                          struct rewarder_trouble *why) RT_BLOCKS;
/* ERR_LEDGER_UNAVAILABLE, ERR_CANCELED. */
NODISCARD enum err rewarder_worker_pool(struct rewarder *r, struct rt_task *self,
                                        const struct rewarder_item *it,
                                        struct rewarder_pool *out) RT_BLOCKS;
/* Opening a run for a reader, emitting again, quarantine and release. */
void rewarder_worker_errand(struct rewarder *r, struct rt_task *self, struct rewarder_item *it) RT_BLOCKS;
void rewarder_worker_shadow(struct rewarder *r, struct rt_task *self, struct rewarder_item *it) RT_BLOCKS;

/* For whoever parses a large snapshot (ctx: its task): the supervisor must not take a worker that reads for one that hangs. */
void rewarder_worker_still_reading(void *ctx, uint64_t done, uint64_t of);

#endif
