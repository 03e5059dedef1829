/*
 * Where a service's commit groups become durable. The local sink is a journal on a disk; the memory sink is
 * the same journal on a disk that forgets (amnesia), so that nothing but durability differs. A replicated
 * sink takes its place behind the same five calls.
 *
 * Ownership   close frees the sink.
 * Threads     As the journal: append by one writer, prepare by one keeper, room and failed by anybody.
 */
#ifndef RON_STORE_SINK_H
#define RON_STORE_SINK_H

#include "store/journal.h"

struct store_sink;

struct store_sink_ops {
    enum err (*append)(struct store_sink *s, const struct store_frame *f, const struct bytes *parts,
                       size_t n_parts, struct store_pos *out_pos);
    struct store_room (*room)(struct store_sink *s);
    enum err (*prepare)(struct store_sink *s);
    enum err (*replay)(struct store_sink *s, uint64_t from_group, store_replay_fn *fn, void *ctx);
    bool (*failed)(struct store_sink *s);
    void (*close)(struct store_sink *s);
};

/* Each implementation's struct starts with this one. */
struct store_sink {
    const struct store_sink_ops *ops;
    const char *kind;              /* "local", "memory", ... */
    struct store_journal *journal; /* for reads by position; NULL when a sink has none */
};

NODISCARD enum err store_sink_local(const struct store_journal_config *cfg, store_replay_fn *replay,
                                    void *ctx, struct store_journal_report *out_report,
                                    struct store_sink **out) RT_BLOCKS;
/* cfg->disk and cfg->dir are ignored; ERR_NO_SPACE once bytes_max (0: no bound) are full. */
NODISCARD enum err store_sink_memory(const struct store_journal_config *cfg, uint64_t bytes_max,
                                     struct store_sink **out) RT_BLOCKS;

NODISCARD enum err store_sink_append(struct store_sink *s, const struct store_frame *f,
                                     const struct bytes *parts, size_t n_parts,
                                     struct store_pos *out_pos) RT_BLOCKS;
struct store_room store_sink_room(struct store_sink *s);
NODISCARD enum err
store_sink_prepare(struct store_sink *s) RT_BLOCKS; /* a spare, or whatever it needs ahead */
NODISCARD enum err store_sink_replay(struct store_sink *s, uint64_t from_group, store_replay_fn *fn,
                                     void *ctx) RT_BLOCKS;
bool store_sink_failed(struct store_sink *s);
void store_sink_close(struct store_sink *s) RT_BLOCKS;

#endif
