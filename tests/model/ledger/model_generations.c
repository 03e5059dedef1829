/*
 * Generations that are opened, filled, frozen, written to a run and let go, while others look keys up: the real index, the real
 * generations and runs. Whatever the order of steps, a key that was given out is found by whoever pins a view afterwards, and a job
 * that pinned its view before is told of it when it is judged; what a pinned view refers to stays alive.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model.h"
#include "rt/chan.h"
#include "rt/os.h"
#include "services/ledger/index.h"

enum { KEYS = 3 }; /* a generation each: the most hand-overs */

static struct shop {
    struct ledger_index index;
    struct rt_chan *gen_tx;
    struct os_a64 given; /* keys that the sequencer has given out */
} * shop;

/* Runs stay in memory here; files are for other tests. */
enum err store_file_open(struct store_disk *d, const char *path, unsigned flags, struct store_file **out)
{
    (void)d, (void)path, (void)flags, (void)out;
    return ERR_IO;
}

void store_file_close(struct store_file *f)
{
    (void)f;
}

enum err store_file_size(struct store_file *f, uint64_t *out)
{
    (void)f, (void)out;
    return ERR_IO;
}

int store_file_fd(struct store_file *f)
{
    (void)f;
    return -1;
}

enum err store_file_read_all(struct store_file *f, void *p, size_t n, uint64_t at)
{
    (void)f, (void)p, (void)n, (void)at;
    return ERR_IO;
}

static struct core_key key_of(uint64_t i, bool unit)
{
    return (struct core_key){{(i + 1) * UINT64_C(0x9e3779b97f4a7c15), (i + 1) << 40 | (unit ? 1 : 2)}};
}

static bool finds(const struct ledger_view *v, uint64_t i)
{
    struct ledger_found unit, entry;
    bool found = ledger_view_find_unit(v, key_of(i, true), &unit);
    CHECK(ledger_view_find_entry(v, key_of(i, false), &entry) == found);
    CHECK(!found || (unit.seq == i + 1 && entry.seq == i + 1));
    return found;
}

/* As ledger_sequence does for one job: a generation with room, the look at what came meanwhile, the keys. */
static void give_out(uint64_t i)
{
    CHECK(ledger_index_open_generation(&shop->index, i + 1, i + 1, 1) == ERR_OK);
    struct ledger_view *now = ledger_index_pin(&shop->index);
    struct ledger_found f;
    CHECK(!ledger_view_grown(now, now, key_of(i, true), true, &f));
    struct ledger_gen *g = ledger_view_open_gen(now);
    struct sha256 fp = {{(uint8_t)i}};
    uint32_t unit = ledger_gen_add_unit(g, key_of(i, true), &fp, i + 1, 1);
    ledger_gen_add_entry(g, key_of(i, false), i + 1, unit, CORE_MINT);
    ledger_gen_set_place(g, unit, (struct core_place){1, (uint32_t)i});
    os_a64_store(&shop->given, i + 1, memory_order_release);
    ledger_gen_ref(g);
    ledger_view_unpin(now);
    if (i + 1 < KEYS) /* complete; the last one stays open */
        CHECK(rt_chan_try_send(shop->gen_tx, g) == ERR_OK);
    else
        ledger_gen_unref(g);
}

static void sequencer(void *arg)
{
    (void)arg;
    for (uint64_t i = 1; i < KEYS; i++)
        give_out(i);
    rt_chan_close(shop->gen_tx);
}

static struct ledger_run *run_of(const struct ledger_gen *g)
{
    struct ledger_index_item items[2] = {
        {g->units[0].key, g->units[0].seq, ledger_gen_place(&g->units[0])},
        {g->entries[0].key, g->entries[0].seq, ledger_gen_place(&g->units[0])}};
    struct ledger_index_item sorted[2];
    CHECK(ledger_index_sort(items, 2, sorted) == ERR_OK);
    struct ledger_run *run = calloc(1, sizeof *run);
    CHECK(run != NULL);
    atomic_init(&run->refs, 1);
    run->n_bytes = ledger_index_run_bytes(2);
    run->bytes = malloc(run->n_bytes);
    CHECK(run->bytes != NULL);
    ledger_index_run_build(sorted, 2, 0, g->first_seq, ledger_gen_last_seq(g), run->bytes);
    CHECK(ledger_index_run_open(run->bytes, run->n_bytes, true, &run->run) == ERR_OK);
    return run;
}

RT_BLOCKS
static void checkpointer(void *arg)
{
    (void)arg;
    void *item;
    while (rt_chan_recv(shop->gen_tx, deadline_never(), &item) == ERR_OK) {
        struct ledger_gen *g = item;
        CHECK(ledger_index_replace(&shop->index, g, NULL, 0, run_of(g)) == ERR_OK);
        ledger_gen_unref(g);
    }
}

/* A prevalidator looks, its job waits, the sequencer judges it with the view that is current then. */
RT_BLOCKS
static void no_key_is_ever_hidden(void)
{
    struct shop *s = shop = os_alloc(sizeof *s);
    CHECK(s != NULL);
    CHECK(ledger_index_init(&s->index) == ERR_OK);
    s->gen_tx = rt_chan_create(&(struct rt_chan_spec){.name = "gen", .capacity = KEYS});
    CHECK(s->gen_tx != NULL);
    give_out(0);
    struct os_thread a, b;
    CHECK(os_thread_start(&a, "sequencer", sequencer, NULL) == ERR_OK);
    CHECK(os_thread_start(&b, "checkpointer", checkpointer, NULL) == ERR_OK);
    uint64_t before = os_a64_load(&s->given, memory_order_acquire);
    struct ledger_view *then = ledger_index_pin(&s->index);
    bool found[KEYS];
    for (uint64_t i = 0; i < KEYS; i++) {
        found[i] = finds(then, i);
        CHECK(found[i] || i >= before);
    }
    os_thread_join(&a);
    os_thread_join(&b);
    struct ledger_view *now = ledger_index_pin(&s->index);
    bool gone = false;
    for (uint64_t i = 0; i < KEYS; i++) {
        struct ledger_found unit, entry;
        CHECK(finds(now, i));
        bool told = ledger_view_grown(then, now, key_of(i, true), true, &unit);
        CHECK(ledger_view_grown(then, now, key_of(i, false), false, &entry) == told);
        CHECK(found[i] || told);
        gone = gone || (told && !unit.young);
    }
    CHECK(now->n_gens == 1 && now->n_runs == KEYS - 1);
    model_cover(gone ? 1 : 0);
    ledger_view_unpin(then);
    ledger_view_unpin(now);
    ledger_index_fini(&s->index);
    rt_chan_destroy(s->gen_tx, NULL, NULL);
    os_free(s);
}

int main(int argc, char **argv)
{
    static const struct model models[] = {
        {.name = "no_key_is_ever_hidden", .body = no_key_is_ever_hidden, .preemptions = 2, .covers = 2},
    };
    return model_main(argc, argv, models, sizeof models / sizeof models[0]);
}
