/*
 * From the seal to the ledger, on the real emitter and registry: a handle in `intents`, a writer that seals the run or fails,
 * an operator who quarantines it, and a shutdown, at any moment of each other. Nothing is sent before the seal, nothing for a
 * run that failed, nothing once a quarantine was seen before a unit, a settled run has its line, and nobody waits for ever.
 */
#include "obs/health.h"
#include "rt/stop.h"
#include "world.h"

enum { LEAVES = 1024, UNITS = 2 };

struct rig {
    struct rewarder r;
    struct rt_task self;
    struct rewarder_policy_ref policy;
    struct rewarder_view view;
    struct rewarder_run *run;
    struct os_a32 sealed, halted, units, lines;
    bool writer_fails;
};
static struct rig g;

/* ---- what the emitter calls ---- */

bool obs_health_set(struct obs_health *h, size_t cause, bool ok)
{
    (void)h;
    (void)cause;
    return ok;
}

struct obs_health *svc_health(const struct svc *s)
{
    (void)s;
    return NULL;
}

enum err rewarder_view_open(struct rewarder_files *f, const struct rewarder_view_spec *spec,
                            struct rewarder_view **out, const char **out_bad)
{
    (void)f;
    (void)spec;
    *out_bad = NULL;
    CHECK(os_a32_load(&g.sealed, memory_order_acquire)); /* the files are not there before */
    *out = &g.view;
    return ERR_OK;
}

const char *rewarder_view_words(enum err e)
{
    return err_name(e);
}

void rewarder_view_rest(struct rewarder_view *v)
{
    (void)v; /* there are no pages here */
}

void rewarder_path_run(const struct rewarder_files *f, bool dry, const char *tenant, const char *epoch,
                       const char *name, char out[STORE_PATH_MAX])
{
    (void)f;
    (void)dry;
    (void)tenant;
    (void)epoch;
    (void)name;
    out[0] = '\0';
}

enum err store_file_open(struct store_disk *d, const char *path, unsigned flags, struct store_file **out)
{
    (void)d;
    (void)path;
    (void)flags;
    (void)out;
    return ERR_IO; /* settle.log is a cache: without it chunks are looked up */
}

void store_file_close(struct store_file *f)
{
    (void)f;
}

enum err store_file_pread(struct store_file *f, void *p, size_t n, uint64_t at, size_t *out_n)
{
    (void)f;
    (void)p;
    (void)n;
    (void)at;
    (void)out_n;
    return ERR_IO;
}

enum err store_file_append(struct store_file *f, const void *p, size_t n)
{
    (void)f;
    (void)p;
    (void)n;
    return ERR_IO;
}

enum err store_file_truncate(struct store_file *f, uint64_t n)
{
    (void)f;
    (void)n;
    return ERR_IO;
}

void rewarder_settle_encode(const struct rewarder_settle_record *r, uint8_t out[REWARDER_SETTLE_RECORD])
{
    (void)r;
    (void)out;
}

bool rewarder_settle_decode(const uint8_t in[REWARDER_SETTLE_RECORD], struct rewarder_settle_record *out)
{
    (void)in;
    (void)out;
    return false;
}

enum err rewarder_settler_funds(struct rewarder_settler *s, struct str account, struct str asset,
                                struct rt_task *self, struct rewarder_funds *out)
{
    (void)s;
    (void)account;
    (void)asset;
    (void)self;
    (void)out;
    return ERR_LEDGER_UNAVAILABLE; /* no run is held for its lanes here */
}

wide_u128 rewarder_chunk_amount(const struct rewarder_payouts *t, uint32_t chunk)
{
    (void)t;
    (void)chunk;
    return 1;
}

void rewarder_count_quarantine(struct rewarder *r, const struct rewarder_run *run)
{
    (void)r;
    (void)run;
}

bool rewarder_settler_ready(struct rewarder_settler *s, struct rt_task *self)
{
    (void)s;
    (void)self;
    return true;
}

/* One unit per chunk; each asks whether it may leave. */
void rewarder_settle(struct rewarder_settler *s, struct rewarder_settle_job *job, struct rt_task *self,
                     struct rewarder_settle_result *out)
{
    (void)s;
    (void)self;
    *out = (struct rewarder_settle_result){.end = REWARDER_SETTLE_DONE};
    for (uint32_t c = 0; c < UNITS; c++) {
        bool halted = os_a32_load(&g.halted, memory_order_acquire) != 0;
        if (job->stop(job->ctx)) {
            out->end = REWARDER_SETTLE_STOPPED;
            return;
        }
        CHECK(!halted); /* asked before this unit: it must not leave */
        CHECK(os_a32_load(&g.sealed, memory_order_acquire));
        os_a32_add(&g.units, 1, memory_order_acq_rel);
        job->places[c] = (struct rewarder_chunk_place){512, 1 + 512u * c};
        job->placed(job->ctx, c, 1 + 512u * c, 1);
        out->committed.units++;
    }
}

bool rewarder_settlement_is_bijection(const struct rewarder_chunk_place *places, uint64_t chunks,
                                      uint64_t leaves)
{
    return places[0].leaves + places[1].leaves == leaves && chunks == UNITS;
}

void rewarder_settlement_write(const struct rewarder_settlement *s, struct buf *b)
{
    (void)s;
    (void)b;
}

void rewarder_note_settled(const struct rewarder_run *run, const struct rewarder_run_info *info,
                           struct buf *b)
{
    (void)run;
    (void)info;
    (void)b;
}

void rewarder_note_quarantined(const struct rewarder_run *run, const struct rewarder_quarantine *q,
                               struct buf *b)
{
    (void)run;
    (void)q;
    (void)b;
}

/* ---- the others ---- */

static void rig_open(bool writer_fails)
{
    struct rewarder_run *holder;
    g = (struct rig){.writer_fails = writer_fails};
    world_config = (struct rewarder_config){.settlement_hold = false};
    CHECK(rewarder_registry_init(&g.r.registry) == ERR_OK);
    g.policy.policy = calloc(1, sizeof *g.policy.policy);
    g.view.policy = &g.policy;
    g.view.table.leaves = LEAVES;
    g.r.intents = world_chan("intents", 1, RT_WAIT);
    g.r.notes = world_chan("notes", 1, RT_WAIT);
    g.r.send_ms = 30000;
    g.r.ledger = (struct ledger_client *)(void *)&g; /* there is one */
    g.run = rewarder_run_create(STR("t"), STR("e"), false);
    CHECK(g.run && g.policy.policy);
    g.run->info.state = REWARDER_COMPUTING;
    g.run->info.leaves = LEAVES;
    CHECK(rewarder_registry_claim(&g.r.registry, g.run, &holder) == ERR_OK);
}

static void drop_run(void *item, void *arg)
{
    (void)arg;
    rewarder_run_unref(item);
}

static void drop_note(void *item, void *arg)
{
    rewarder_outcome_destroy(arg, item);
}

static void rig_close(void)
{
    rt_chan_destroy(g.r.intents, drop_run, NULL);
    rt_chan_destroy(g.r.notes, drop_note, &g.r);
    free(g.view.places);
    rewarder_run_unref(g.run);
    rewarder_registry_fini(&g.r.registry);
    free(g.policy.policy);
}

RT_BLOCKS
static void emit(void *arg)
{
    (void)arg;
    CHECK(rewarder_emitter_run(&g.self, &g.r) == ERR_OK);
}

/* The artifact writer: the seal, then lines until there are no more. */
RT_BLOCKS
static void write_down(void *arg)
{
    (void)arg;
    if (g.writer_fails) {
        rewarder_run_fail(&g.r, g.run, ERR_IO, "", NULL);
    } else {
        os_a32_store(&g.sealed, 1, memory_order_release);
        CHECK(rewarder_run_move(&g.r.registry, g.run, REWARDER_EV_SEAL, NULL, NULL) == ERR_OK);
    }
    (void)!rt_oneshot_send(&g.run->sealed, (void *)(uintptr_t)(g.writer_fails ? 2 : 1));
    void *item;
    while (rt_chan_recv(g.r.notes, deadline_never(), &item) == ERR_OK) {
        struct rewarder_outcome *o = item;
        os_a32_add(&g.lines, 1, memory_order_relaxed);
        if (o->receipt)
            rewarder_receipt_give(o->receipt, true);
        o->receipt = NULL;
        rewarder_outcome_destroy(&g.r, o);
    }
}

/* POST …/quarantine: halt first, then the move. */
static void quarantine(void *arg)
{
    (void)arg;
    atomic_store(&g.run->halt, true);
    os_a32_store(&g.halted, 1, memory_order_release);
    if (rewarder_run_move(&g.r.registry, g.run, REWARDER_EV_QUARANTINE, NULL, NULL) != ERR_OK)
        model_cover(2); /* settled, or not sealed yet */
}

static void start(struct os_thread *t, const char *name, void (*fn)(void *), void *arg)
{
    CHECK(os_thread_start(t, name, fn, arg) == ERR_OK);
}

RT_BLOCKS
static void play(bool with_operator)
{
    struct os_thread emitter, writer, operator;
    start(&emitter, "emitter", emit, NULL);
    start(&writer, "artifact", write_down, NULL);
    if (with_operator)
        start(&operator, "operator", quarantine, NULL);
    /* the worker: the handle, with a bounded wait */
    rewarder_run_ref(g.run);
    if (rt_chan_send(g.r.intents, g.run, deadline_in_ms(30000)) != ERR_OK)
        rewarder_run_unref(g.run);
    if (with_operator)
        os_thread_join(&operator);
    os_a32_or(&g.self.stop.flags, RT_STOP_SOFT,
              memory_order_acq_rel); /* a drain at any moment of the emission */
    rt_chan_close(g.r.intents);
    os_thread_join(&emitter);
    rt_chan_close(g.r.notes);
    os_thread_join(&writer);
    enum rewarder_state end = rewarder_run_read(&g.r.registry, g.run).state;
    uint32_t units = os_a32_load(&g.units, memory_order_acquire);
    CHECK(end == REWARDER_SETTLED || end == REWARDER_SEALED || end == REWARDER_EMITTING ||
          end == REWARDER_QUARANTINED || (g.writer_fails && end == REWARDER_FAILED));
    CHECK(end != REWARDER_SETTLED || (units == UNITS && os_a32_load(&g.lines, memory_order_acquire) == 1));
    CHECK(!g.writer_fails || units == 0);
}

RT_BLOCKS
static void a_sealed_run_is_sent_once_and_a_drain_loses_nothing(void)
{
    rig_open(false);
    play(false);
    uint32_t units = os_a32_load(&g.units, memory_order_acquire);
    CHECK(units <= UNITS);
    model_cover(units == UNITS ? 0 : units ? 1 : 2);
    rig_close();
}

RT_BLOCKS
static void a_run_that_could_not_be_written_is_never_sent(void)
{
    rig_open(true);
    play(false);
    rig_close();
}

RT_BLOCKS
static void a_quarantine_stops_the_next_unit(void)
{
    rig_open(false);
    play(true);
    uint32_t units = os_a32_load(&g.units, memory_order_acquire);
    model_cover(units == 0 ? 0 : 1);
    rig_close();
}

int main(int argc, char **argv)
{
    const struct model models[] = {
        {.name = "a_sealed_run_is_sent_once_and_a_drain_loses_nothing",
         .body = a_sealed_run_is_sent_once_and_a_drain_loses_nothing,
         .preemptions = 2,
         .covers = 3},
        {.name = "a_run_that_could_not_be_written_is_never_sent",
         .body = a_run_that_could_not_be_written_is_never_sent,
         .preemptions = 2},
        {.name = "a_quarantine_stops_the_next_unit",
         .body = a_quarantine_stops_the_next_unit,
         .preemptions = 2,
         .covers = 3},
    };
    return model_main(argc, argv, models, sizeof models / sizeof *models);
}
