/*
 * The ledger as its tasks and its doors see it: configuration, state, tree, index, journal, queues, the published head.
 *
 * Who writes what
 *   sequencer   ahead half of the state, next_seq, time, keys of the open generation
 *   committer   journal, tree, groups, committed half of the state, places in generations, the head
 *   checkpointer  files under tree/ index/ state/ ckpt/, the index's runs
 * Everybody else reads: the head first, then what lies below it.
 *
 * Threads     One owner per part as above; the head is published with a sequence lock, the rest by release/acquire.
 */
#ifndef RON_LEDGER_LEDGER_H
#define RON_LEDGER_LEDGER_H

#include "base/clock.h"
#include "obs/log.h"
#include "obs/metrics.h"
#include "rt/bcast.h"
#include "rt/bell.h"
#include "rt/chan.h"
#include "rt/watch.h"
#include "services/ledger/column.h"
#include "services/ledger/core/ledger_time.h"
#include "services/ledger/core/merkle.h"
#include "services/ledger/core/note.h"
#include "services/ledger/job.h"
#include "store/sink.h"

struct auth;
struct ledger_policy;
struct ledger_runs;
struct ledger_replica;

enum ledger_metric {
#define OBS_DEF(id) LEDGER_M_##id,
#include "obs/metrics_ids.h"
#include "services/ledger/metrics.def"
#include "obs/metrics_end.h"
    LEDGER_M_COUNT
};

/* Effective numbers; names as in config.def. */
/* What is atomic is written by a reload while tasks read it: they see the old number or the new one. */
struct ledger_settings {
    char dir[STORE_PATH_MAX];
    char key_file[STORE_PATH_MAX];
    char origin[NOTE_ORIGIN_MAX + 1]; /* "": localhost/ron-ledger/<ledger_id> */
    uint32_t q_ingress, q_preval, q_commit, q_read;
    struct ledger_limits limits;
    _Atomic uint32_t max_entries; /* per request */
    uint64_t max_body_bytes;
    _Atomic uint64_t max_inflight_bytes;
    uint32_t max_jobs;
    _Atomic uint32_t max_subscribers;
    _Atomic int64_t request_ms, commit_wait_ms;
    uint32_t commit_max_entries, commit_max_bytes;
    bool direct_io;
    uint32_t segment_bytes, align;
    _Atomic bool compress;
    _Atomic uint64_t scrub_rate;
    uint32_t checkpoint_entries;
    _Atomic uint32_t checkpoint_retain;
    uint32_t merge_slice_bytes; /* merged between two looks for a complete generation */
    _Atomic int64_t checkpoint_interval_ms;
    _Atomic bool public_roots, public_entries;
    bool amnesia;
    uint64_t amnesia_max_entries;
    bool drills;
    char replica_dsn[1024]; /* "": alone */
    char replica_stream[65], replica_node[65], replica_url[257];
    int64_t replica_lease_ms, replica_timeout_ms, replica_poll_ms;
    uint32_t replica_quorum;
    bool replica_auto;   /* takes over by itself when the lease has run out */
    bool replica_rejoin; /* opens again by itself when it was fenced */
    bool replica_local;  /* a group is answered when it is on the local disk too */
};
void ledger_settings_default(struct ledger_settings *s);

enum { LEDGER_WHY_MAX = 400 };

struct ledger_deps {
    struct store_disk *disk;
    const struct clock *clock;
    struct obs_log *log;         /* may be NULL */
    struct obs_metrics *metrics; /* may be NULL */
    struct auth *auth;           /* may be NULL: direct use in tests */
    char *why; /* LEDGER_WHY_MAX bytes for one sentence when opening is refused; may be NULL */
};

struct ledger_head {
    uint64_t seq, group_no, ledger_ms;
    struct sha256 root;
};

enum ledger_cause {
    CAUSE_NONE,
    CAUSE_IO_ERROR,
    CAUSE_CORRUPT,
    CAUSE_CLEAN_MISMATCH,
    CAUSE_BEHIND_CHECKPOINT,
    CAUSE_INVARIANT,
    CAUSE_FENCED,
    CAUSE_DRAIN_TIMEOUT,
    CAUSE_SCRUB,
    CAUSE_OPERATOR,
};
const char *ledger_cause_name(enum ledger_cause c);

/* Following: another ledger writes, the replica task plays its groups (replica.h). */
enum ledger_phase { PHASE_REPLAYING, PHASE_FOLLOWING, PHASE_RUNNING, PHASE_DRAINING, PHASE_STOPPED };

/* One group, as subscribers see it. Counted by reference; the accounts are those of `rows`, in any order. */
struct ledger_group_event {
    _Atomic uint32_t refs;
    uint64_t seq_start, seq_end, group_no, ledger_ms;
    struct sha256 root;
    uint32_t n_rows;
    uint32_t rows[];
};

/* 64 bytes of the group table. */
struct ledger_group_row {
    uint64_t last_seq, group_no, ledger_ms;
    uint32_t segment, offset;
    struct sha256 root;
};

/* State values that changed in a generation, newest last per key (gen_log.c); what a state run is made of. */
struct ledger_change {
    struct ledger_effect fx;
    uint64_t seq_end;
    struct ledger_state_record
        *hold; /* FX_HOLD: the record itself, since the hold's place may be taken by another */
};
enum { GEN_LOG_RECENT_BITS = 16, LEDGER_GENS_FROZEN_MAX = 3 };
struct ledger_gen_log {
    struct ledger_gen_log *next;
    struct ledger_gen *gen;
    struct ledger_change *v; /* reserved, touched as it fills */
    uint64_t cap;
    _Atomic uint64_t n;
    bool in_force; /* its runs are in the index; what is missing is a manifest */
    uint32_t recent[1 << GEN_LOG_RECENT_BITS]; /* 1 + place of a key's last value */
};

enum { ROUND_JOBS_MAX = 256, ROUND_ENTRIES_MAX = 8192, ROUND_EXPIRE_MAX = 256, ROUND_OWN_MAX = 2 };
struct ledger_round {
    struct ledger_job *jobs[ROUND_JOBS_MAX];
    uint32_t n;
    struct ledger_job *out[ROUND_JOBS_MAX + ROUND_OWN_MAX];
    uint32_t n_out;
    struct ledger_job *refused[ROUND_JOBS_MAX];
    uint32_t n_refused;
};

struct ledger {
    struct ledger_settings set;
    struct ledger_deps deps;
    struct obs_family *m[LEDGER_M_COUNT];
    struct obs_family *auth_failures; /* of the frame; NULL without one */

    struct ledger_state *state;
    struct ledger_index index;
    struct ledger_jobs jobs;
    struct ledger_column levels[MERKLE_LEVELS], groups;
    struct store_sink *sink;
    struct store_file *lock_file;
    struct ledger_signer *signer;
    uint8_t ledger_id[16];

    /* sequencer */
    struct ledger_time time;
    uint64_t next_seq, gen_number;
    _Atomic uint64_t ledger_ms;      /* last time it took, for everybody */
    _Atomic uint64_t inflight_bytes; /* sequencer adds, committer takes off */
    _Atomic uint32_t frozen_gens;    /* frozen and not yet in a run */
    _Atomic bool want_gen;           /* a checkpoint is asked for: the open generation is to end */

    struct ledger_round round;

    /* committer */
    struct ledger_frontier frontier;
    uint64_t next_group;
    struct sha256 last_root;
    struct ledger_gen_log *gen_log_last; /* being filled */
    /* Complete, oldest first, while opening: there is no checkpointer yet. Afterwards they go through gen_tx. */
    struct ledger_gen_log *gen_log_done[LEDGER_GENS_FROZEN_MAX];
    unsigned n_gen_log_done;
    _Atomic int64_t commit_began_ns;    /* 0: idle */
    _Atomic uint32_t event_subscribers; /* streams of commits, which want the rows named */
    _Atomic uint32_t listeners;         /* streams of any kind; without one nobody is woken for a commit */

    /* head: sequence lock, version odd while written */
    _Atomic uint64_t head_version, head_seq;
    _Atomic uint64_t head_words[6];

    _Atomic int cause; /* enum ledger_cause; CAUSE_NONE = writes are on */
    _Atomic int phase;
    _Atomic bool disk_pressure, checkpoint_failing;
    _Atomic uint64_t checkpoint_seq;
    _Atomic uint32_t checkpoint_segment; /* where replay would begin: from here on nothing is packed */
    _Atomic uint64_t body_bytes;         /* of requests in flight */
    _Atomic uint32_t jobs_inflight;
    uint32_t begun_noted; /* segment_keeper: what BEGUN says, as far as it knows */
    char bad_file[64];
    atomic_bool derived_damaged; /* an index run, tree or groups rotted; only a start gets over that */
    uint64_t bad_offset, torn_bytes;
    char bad_reason[320];

    struct rt_chan *ingress, *preval, *commit, *late, *gen_tx, *read, *admin;
    struct rt_bcast *root_pub;
    struct rt_bell segment_want;          /* the journal has used its spare: for the segment_keeper */
    struct ledger_policy *_Atomic policy; /* release by who loads; acquire by prevalidators */
    struct ledger_providers *providers;   /* NULL: asks nobody */
    struct obs_tracer *tracer;            /* NULL: no spans */
    struct ledger_runs *runs;             /* checkpointer */
    struct ledger_replica *replica;       /* NULL: alone */
    enum err (*packed_pread)(void *ctx, uint32_t segment_no, void *p, size_t n, uint64_t at);
    uint64_t seed0, seed1; /* of the state's hashing */
    void *shell;           /* of the process that hosts it */
};

/*
 * Opens (or founds) the ledger in set->dir, replays and verifies, leaves it Running or in safe mode. ERR_LOCKED, ERR_VERSION,
 * ERR_PERMISSION … when it cannot be served at all. Queues exist afterwards; no task runs yet.
 */
NODISCARD enum err ledger_open(const struct ledger_settings *set, const struct ledger_deps *deps,
                               struct ledger **out) RT_BLOCKS;
/* Everything is joined. `clean`: the last group is durable and checkpointed, write CLEAN. */
void ledger_close(struct ledger *l, bool clean) RT_BLOCKS;
/* Makes the queues; a service that declares them elsewhere fills in the pointers itself instead. */
NODISCARD enum err ledger_queues_create(struct ledger *l);

/* Opening is refused: says why, to the log and to whoever opens it. */
NODISCARD enum err ledger_refuse(struct ledger *l, enum err err, const char *why);

/* ---- the head ---- */
void ledger_head_read(const struct ledger *l, struct ledger_head *out);
void ledger_head_publish(struct ledger *l, const struct ledger_head *h);

/* After an append by whoever writes: the keeper is told when the spare segment was used. */
void ledger_note_spare(struct ledger *l);

/*
 * Whether a commit wakes anybody up. Who listens first says so and then reads the head; who commits publishes the head and then
 * asks. One of them sees the other (a fence on both sides), so no commit is left for the next one to tell of.
 */
void ledger_listen(struct ledger *l);
void ledger_unlisten(struct ledger *l);
bool ledger_is_heard(const struct ledger *l);
static inline uint64_t ledger_head_seq(const struct ledger *l)
{
    return atomic_load_explicit(&l->head_seq, memory_order_acquire); /* pairs with publish */
}

/* ---- safe mode ---- */
bool ledger_enter_safe_mode(struct ledger *l, enum ledger_cause cause,
                            const char *detail); /* false: was in it already */
static inline enum ledger_cause ledger_safe_cause(const struct ledger *l)
{
    return (enum ledger_cause)atomic_load_explicit(&l->cause, memory_order_acquire);
}

/* ---- the pipeline's steps; tasks/ run them in loops, simulations one by one ---- */

/* A door hands a job in. ERR_BUSY, ERR_DRAINING, ERR_SAFE_MODE …: the job stays the caller's. */
NODISCARD enum err ledger_submit(struct ledger *l, struct ledger_job *job);
/* Its two halves, for doors that collect jobs in between: admit counts it in; not_taken counts it
 * out again and returns what to answer. */
NODISCARD enum err ledger_admit(struct ledger *l, struct ledger_job *job);
enum err ledger_not_taken(struct ledger *l, struct ledger_job *job, enum err why);
void ledger_answer(struct ledger *l, struct ledger_job *job);
/* A drain ran out of time: what still waits in this queue, which is closed, is answered with `why`. */
void ledger_answer_queued(struct ledger *l, struct rt_chan *closed, enum err why);
/* A job that had to be sequenced by `by` is answered by then; after that its outcome is open and the door says so. */
static inline struct deadline ledger_answer_by(const struct ledger *l, struct deadline by)
{
    return deadline_at_ns(by.at_ns > INT64_MAX - l->set.commit_wait_ms * 1000000
                              ? INT64_MAX
                              : by.at_ns + l->set.commit_wait_ms * 1000000);
}

/* Decodes, checks, looks up, builds records. STEP_ASK: a provider has to be heard (job->asks); then it goes on where it
 * stopped. STEP_NO_MEMORY: refused too, and whoever worked on it had better let go of what it has. */
enum ledger_step { STEP_PASS, STEP_REFUSED, STEP_ASK, STEP_NO_MEMORY };
enum ledger_step ledger_prevalidate_step(struct ledger *l, struct ledger_job *job) RT_BLOCKS;
/* For a ledger that asks nobody. True: pass it on; false: it was refused (answer it). */
bool ledger_prevalidate(struct ledger *l, struct ledger_job *job) RT_BLOCKS;

/* Orders and judges one round; out_jobs (as many as came, plus the ledger's own) go to the committer in this order. */
void ledger_sequence(struct ledger *l, struct ledger_round *r, uint32_t commit_slots);
uint64_t ledger_now_ms(struct ledger *l); /* sequencer only */
/* Room in the journal for what is in flight and a full round? */
bool ledger_has_room(struct ledger *l);

/* Makes one group durable and publishes it. Not ERR_OK: safe mode was entered; outcomes are unknown. */
NODISCARD enum err ledger_commit(struct ledger *l, struct ledger_job *const *jobs, uint32_t n) RT_BLOCKS;
/* Whether the group would still be within its limits with this job. */
struct ledger_group_size {
    uint64_t entries, bytes;
    const struct ledger_gen *gen;
};
bool ledger_group_takes(const struct ledger *l, struct ledger_group_size *g, const struct ledger_job *job);

/* Committer (or opening): remembers new state values for the generation's state run. */
void ledger_log_changes(struct ledger *l, struct ledger_gen *gen, const struct ledger_effect *fx,
                        uint32_t n_fx, uint64_t seq_end);
/* Committer (or a follower): all of the generations before `open` is durable; the one that was being filled is complete. */
void ledger_log_turn(struct ledger *l, struct ledger_gen *open);
/* gen_tx is there now: what opening completed and nobody has written goes to the checkpointer. */
void ledger_gen_logs_hand_over(struct ledger *l);

/* What a job may add to the journal beyond its records, when it becomes a group of its own. */
enum { GROUP_PADDING = STORE_FRAME_HEADER + STORE_FRAME_TRAILER + 4096 };

/* ---- facts from the journal ---- */
NODISCARD enum err ledger_fact_find(struct ledger *l, const struct ledger_view *v, struct core_key ref,
                                    struct arena *a, struct ledger_fact *out) RT_BLOCKS;

/* Reads a segment that was packed (segz.h). */
NODISCARD enum err ledger_packed_pread(void *ledger, uint32_t segment_no, void *p, size_t n,
                                       uint64_t at) RT_BLOCKS;

/* Frees a group event when the last reference goes. */
void ledger_group_event_ref(void *ev);
void ledger_group_event_unref(void *ev);

/* Counts a request that is refused at the door, before it is a job in the pipeline; ledger_admit and ledger_not_taken count their own. */
void ledger_refused(struct ledger *l, enum err err);

static inline struct obs_counter *ledger_m_counter(struct ledger *l, enum ledger_metric id)
{
    return l->m[id] == NULL ? NULL : obs_counter(l->m[id]);
}

#endif
