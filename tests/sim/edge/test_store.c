/*
 * The store on a disk that fails. Power is cut at every call of fills, commits, renewals, removals, eviction and compaction,
 * with any subset of unflushed sectors kept: the next start succeeds, every acknowledged name is there with exactly its bytes,
 * no name points to an object that is not, and no temporary is left. EIO and ENOSPC at every call: a commit that was
 * acknowledged survives a power cut right after it, one that was not leaves the name as it was, and what is read is never
 * wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "services/edge/store.h"
#include "store/disk_faulty.h"

extern const struct svc_def edge_svc;

enum { NAMES = 8, STEPS = 26, BODY_MAX = 200000 };

struct value {
    bool there;
    struct sha256 digest;
};

struct rig {
    struct svc_data *data;
    struct svc *svc;
    struct edge *e;
    struct store_disk *disk;
    struct rng rng;
    uint64_t serial;
    uint8_t *body;
    struct value before[NAMES]; /* what the store said after the last whole step */
    int touched;                /* the name the step under way is about, -1: any may go */
    struct value wanted;
    bool filled; /* the last step stored what is wanted */
    bool faulty; /* a fault is planned: reading may fail */
    bool tight;  /* so little room that anything may be evicted, except what was just committed */
};

static void name_of(int i, char out[32])
{
    snprintf(out, 32, "fonts/%d.woff2", i);
}

static enum err boot(struct rig *r) RT_BLOCKS
{
    const char *const flags[] = {r->tight ? "cas.max_bytes=1MiB" : "cas.max_bytes=64MiB", "cas.min_free=0",
                                 "packs.demo=false", "bind=127.0.0.1:0", "uds="};
    enum err err = svc_open(
        &edge_svc,
        &(struct svc_options){
            .data = r->data, .quiet = true, .log_fd = -1, .disk = r->disk, .flags = flags, .flag_count = 5},
        &r->svc);
    r->e = r->svc ? svc_state(r->svc) : NULL;
    return err;
}

static void down(struct rig *r) RT_BLOCKS
{
    svc_close(r->svc);
    r->svc = NULL;
    r->e = NULL;
}

static struct value look(struct rig *r, int i)
{
    char name[32];
    struct edge_hit hit;
    name_of(i, name);
    bool there = edge_store_find(r->e->store, str_from_c(name), &hit);
    return (struct value){there, there ? hit.digest : (struct sha256){{0}}};
}

static bool same(const struct value *a, const struct value *b)
{
    return a->there == b->there && (!a->there || sha256_eq(&a->digest, &b->digest));
}

/* As a worker does it: a temporary file, flushed, then the writer's. */
static enum err fill(struct rig *r, int i) RT_BLOCKS
{
    struct edge_store *s = r->e->store;
    struct store_file *f;
    struct edge_commit *c = calloc(1, sizeof *c);
    size_t n = 1 + (size_t)rng_below(&r->rng, BODY_MAX);
    void *value;
    CHECK(c);
    memset(r->body, (int)(r->serial & 0xff), n);
    memcpy(r->body, &r->serial, n < sizeof r->serial ? n : sizeof r->serial);
    r->serial++;
    atomic_init(&c->refs, 2);
    rt_oneshot_init(&c->done);
    name_of(i, c->name);
    snprintf(c->tmp, sizeof c->tmp, "%.400s/cas/tmp/w-%llu", s->dir, (unsigned long long)r->serial);
    c->record = (struct edge_record){.type = EDGE_PUT_REF,
                                     .name = str_from_c(c->name),
                                     .mime = STR("font/woff2"),
                                     .etag = STR("\"x\""),
                                     .size = n};
    sha256_of(r->body, n, &c->record.digest);
    r->touched = i;
    r->wanted = (struct value){true, c->record.digest};
    enum err err = store_file_open(s->disk, c->tmp, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &f);
    if (err == ERR_OK) {
        err = store_file_append(f, r->body, n);
        if (err == ERR_OK)
            err = store_file_sync(f);
        store_file_close(f);
    }
    if (err != ERR_OK) {
        edge_commit_unref(c);
        edge_commit_unref(c);
        return err;
    }
    edge_store_commit(s, &c, 1);
    CHECK(rt_oneshot_recv(&c->done, deadline_in_ms(30000), &value) == ERR_OK);
    err = c->result;
    r->filled = true;
    edge_commit_unref(c);
    return err;
}

static void record(struct rig *r, int i, enum edge_record_type type) RT_BLOCKS
{
    struct edge_commit *c = calloc(1, sizeof *c);
    void *value;
    CHECK(c);
    atomic_init(&c->refs, 2);
    rt_oneshot_init(&c->done);
    name_of(i, c->name);
    c->record = (struct edge_record){
        .type = type, .name = str_from_c(c->name), .fetched_ms = 5, .valid_until_ms = 6};
    r->touched = i;
    r->wanted = type == EDGE_DEL_REF ? (struct value){0} : r->before[i];
    edge_store_commit(r->e->store, &c, 1);
    CHECK(rt_oneshot_recv(&c->done, deadline_in_ms(30000), &value) == ERR_OK);
    edge_commit_unref(c);
}

static void put_aside(struct rig *r, int i) RT_BLOCKS
{
    struct value v = r->before[i];
    r->touched = -1; /* several names may share the object */
    if (!v.there)
        return;
    edge_store_do(r->e->store, &(struct edge_store_op){.kind = EDGE_OP_QUARANTINE, .digest = v.digest});
}

/* Makes the log long enough to be written anew, by what no object knows of. */
static enum err lengthen(struct rig *r) RT_BLOCKS
{
    struct edge_store *s = r->e->store;
    static uint8_t touches[EDGE_TOUCH_MAX * EDGE_TOUCH_BYTES];
    struct buf b;
    buf_init(&b, (size_t)4 << 20);
    while (b.n <= (size_t)1 << 20)
        edge_record_encode(
            &(struct edge_record){.type = EDGE_TOUCH, .touches = bytes_of(touches, sizeof touches)}, &b);
    enum err err = store_file_pwrite(s->log, b.p, b.n, s->log_bytes);
    if (err == ERR_OK)
        s->log_bytes += b.n;
    buf_fini(&b);
    return err;
}

/* One step; true: it was acknowledged or changes nothing a client was told. */
static enum err step(struct rig *r) RT_BLOCKS
{
    int i = (int)rng_below(&r->rng, NAMES);
    uint64_t what = rng_below(&r->rng, 10);
    enum err err = ERR_OK;
    r->filled = false;
    if (what < 6)
        err = fill(r, i);
    else if (what == 6)
        record(r, i, EDGE_RENEW);
    else if (what == 7)
        record(r, i, EDGE_DEL_REF);
    else if (what == 8)
        put_aside(r, i);
    else {
        r->touched = -1;
        if (lengthen(r) == ERR_OK)
            edge_store_upkeep(r->e->store, false);
        else
            return ERR_OK; /* nobody writes like that: what is left of it is not the store's fault */
    }
    return err;
}

/* Every name points to an object that is whole. */
static void check_objects(struct rig *r) RT_BLOCKS
{
    for (int i = 0; i < NAMES; i++) {
        struct value v = look(r, i);
        struct edge_file *file;
        if (!v.there)
            continue;
        enum err err = edge_store_open(r->e->store, &v.digest, false, &file); /* hashes it wholly */
        if (err != ERR_OK && r->faulty && store_disk_faulty_fired(r->disk))
            return; /* the fault hit the reading: nothing was served */
        if (err != ERR_OK)
            fail_msg("name %d points to an object that cannot be served: %s", i, err_name(err));
        edge_file_unref(file);
    }
}

static enum err count_one(void *ctx, const char *name)
{
    (void)name;
    ++*(int *)ctx;
    return ERR_OK;
}

static void check_after(struct rig *r, const char *what, uint64_t at) RT_BLOCKS
{
    char dir[STORE_PATH_MAX];
    int left = 0;
    for (int i = 0; i < NAMES; i++) {
        struct value now = look(r, i);
        bool changed = i == r->touched && same(&now, &r->wanted);
        bool may_go = r->tight || r->touched == -1; /* evicted; put aside, which is about several names */
        if (!same(&now, &r->before[i]) && !changed && (now.there || !may_go))
            fail_msg("%s at call %llu: name %d is not what anybody was told", what, (unsigned long long)at,
                     i);
    }
    check_objects(r);
    snprintf(dir, sizeof dir, "%.400s/cas/tmp", r->e->store->dir);
    assert_int_equal(store_disk_list(r->disk, dir, count_one, &left), ERR_OK);
    assert_int_equal(left, 0);
}

static void remember(struct rig *r)
{
    for (int i = 0; i < NAMES; i++)
        r->before[i] = look(r, i);
}

/* Runs the script until the fault has happened or it is over. True: there was a fault. */
static bool run(struct rig *r, uint64_t seed, const struct store_fault_plan *plan,
                bool *out_booted) RT_BLOCKS
{
    rng_seed(&r->rng, seed);
    r->serial = seed << 20;
    r->touched = -1;
    memset(r->before, 0, sizeof r->before);
    assert_int_equal(store_disk_faulty(seed, plan, &r->disk), ERR_OK);
    r->faulty = true;
    *out_booted = boot(r) == ERR_OK;
    for (int i = 0; *out_booted && i < STEPS; i++) {
        bool fired = store_disk_faulty_fired(r->disk);
        enum err err = step(r);
        if (store_disk_faulty_is_down(r->disk))
            return true;
        if (!fired && store_disk_faulty_fired(r->disk)) { /* EIO or ENOSPC in this step */
            struct value now = r->touched >= 0 ? look(r, r->touched) : (struct value){0};
            if (r->touched >= 0 && err != ERR_OK && !same(&now, &r->before[r->touched]))
                fail_msg("a refused commit changed its name");
            if (r->touched >= 0 && err == ERR_OK && r->wanted.there && !same(&now, &r->wanted))
                fail_msg("an acknowledged commit is not there");
            remember(r);
            r->touched = -1;
            return true;
        }
        check_objects(r);
        if (store_disk_faulty_is_down(r->disk))
            break;
        struct value now = r->touched >= 0 ? look(r, r->touched) : (struct value){0};
        if (r->filled && err == ERR_OK && !same(&now, &r->wanted))
            fail_msg("what was just stored is gone");
        remember(r);
        r->touched = -2; /* nothing is under way */
    }
    return store_disk_faulty_fired(r->disk) || store_disk_faulty_is_down(r->disk);
}

static struct rig *rig_open(void) RT_BLOCKS
{
    char root[] = "/tmp/ron-edge-sim-XXXXXX";
    const char *why = NULL;
    struct rig *r = calloc(1, sizeof *r);
    CHECK(r && mkdtemp(root));
    r->body = malloc(BODY_MAX + 16);
    CHECK(r->body);
    if (svc_data_open(root, false, SVC_DATA_SHARED, &r->data, &why) != ERR_OK)
        fail_msg("%s", why);
    return r;
}

static void rig_close(struct rig *r) RT_BLOCKS
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf %s", svc_data_path(r->data));
    svc_data_close(r->data);
    if (system(command) != 0)
        fail_msg("%s", command);
    free(r->body);
    free(r);
}

static uint64_t first_seed(void)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void power_cuts(struct rig *r, uint64_t seed, enum store_keep keep) RT_BLOCKS
{
    for (uint64_t at = 1;; at += 1 + (seed * 7 + at) % 5) { /* every call is reached by some seed */
        bool booted;
        bool hit = run(r, seed, &(struct store_fault_plan){.crash_at = at, .keep = keep}, &booted);
        if (!hit) {
            down(r);
            store_disk_destroy(r->disk);
            return;
        }
        down(r);
        store_disk_faulty_reboot(r->disk);
        store_disk_faulty_plan(r->disk, &(struct store_fault_plan){0});
        r->faulty = false;
        if (boot(r) != ERR_OK)
            fail_msg("no start after a power cut at call %llu of seed %llu", (unsigned long long)at,
                     (unsigned long long)seed);
        check_after(r, "power cut", at);
        down(r);
        store_disk_destroy(r->disk);
    }
}

static void spoil(struct rig *r, const struct sha256 *digest) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct store_file *f;
    uint8_t byte;
    edge_store_object_path(r->e->store, digest, path);
    assert_int_equal(store_file_open(r->disk, path, STORE_WRITE, &f), ERR_OK);
    assert_int_equal(store_file_read_all(f, &byte, 1, 0), ERR_OK);
    byte ^= 1;
    assert_int_equal(store_file_pwrite(f, &byte, 1, 0), ERR_OK);
    store_file_close(f);
}

static void same_fill(struct rig *r, int i) RT_BLOCKS
{
    rng_seed(&r->rng, 1);
    r->serial = 5;
    assert_int_equal(fill(r, i), ERR_OK);
}

static void edge_e2_bytes_that_come_again_take_the_place_of_damaged_ones(void **state) RT_UNCHECKED
{
    (void)state;
    struct rig *r = rig_open();
    struct edge_file *file;
    struct sha256 found;
    assert_int_equal(store_disk_faulty(1, &(struct store_fault_plan){0}, &r->disk), ERR_OK);
    assert_int_equal(boot(r), ERR_OK);
    same_fill(r, 0);
    struct sha256 digest = r->wanted.digest;
    spoil(r, &digest);
    same_fill(r, 1);
    assert_true(sha256_eq(&digest, &r->wanted.digest));
    assert_int_equal(edge_store_open(r->e->store, &digest, true, &file),
                     ERR_OK); /* as a fill's waiter does */
    assert_int_equal(edge_file_hash(file, 0, file->size, &found), ERR_OK);
    assert_true(sha256_eq(&found, &digest));
    edge_file_unref(file);
    down(r);
    store_disk_destroy(r->disk);
    rig_close(r);
}

static void edge_e7_a_power_cut_anywhere_loses_nothing_acknowledged(void **state) RT_UNCHECKED
{
    (void)state;
    struct rig *r = rig_open();
    uint64_t seed = first_seed();
    power_cuts(r, seed, STORE_KEEP_RANDOM);
    power_cuts(r, seed + 1, STORE_KEEP_NONE);
    power_cuts(r, seed + 2, STORE_KEEP_ALL);
    r->tight = true;
    power_cuts(r, seed + 3, STORE_KEEP_RANDOM);
    rig_close(r);
}

/* After the fault the power goes too: what was acknowledged must not have been in the cache alone. */
static void faults(struct rig *r, uint64_t seed, bool space) RT_BLOCKS
{
    for (uint64_t at = 1;; at += 1 + (seed * 5 + at) % 4) {
        struct store_fault_plan plan = {.keep = STORE_KEEP_NONE};
        bool booted;
        *(space ? &plan.enospc_at : &plan.eio_at) = at;
        bool hit = run(r, seed, &plan, &booted);
        bool fired = store_disk_faulty_fired(r->disk);
        if (booted && hit && fired) {
            for (int i = 0; i < 3; i++) { /* it goes on, or says that it does not */
                enum err err = fill(r, i);
                struct value now = look(r, i);
                if (err == ERR_OK && !same(&now, &r->wanted))
                    fail_msg("an acknowledged commit after the fault is not there");
                if (err != ERR_OK && atomic_load(&r->e->store->readonly) && !same(&now, &r->before[i]))
                    fail_msg("a store that only reads has changed");
                remember(r);
                r->touched = -1;
            }
            check_objects(r);
        }
        store_disk_faulty_cut(r->disk);
        down(r);
        store_disk_faulty_reboot(r->disk);
        store_disk_faulty_plan(r->disk, &(struct store_fault_plan){0});
        r->faulty = false;
        if (boot(r) != ERR_OK)
            fail_msg("no start after a fault at call %llu of seed %llu", (unsigned long long)at,
                     (unsigned long long)seed);
        if (booted)
            check_after(r, space ? "ENOSPC" : "EIO", at);
        down(r);
        store_disk_destroy(r->disk);
        if (!fired)
            return;
    }
}

static void edge_e4_after_a_failed_write_what_was_acknowledged_is_durable(void **state) RT_UNCHECKED
{
    (void)state;
    struct rig *r = rig_open();
    faults(r, first_seed() + 10, false);
    rig_close(r);
}

static void edge_e4_a_full_disk_refuses_and_loses_nothing(void **state) RT_UNCHECKED
{
    (void)state;
    struct rig *r = rig_open();
    faults(r, first_seed() + 20, true);
    rig_close(r);
}

/* Not a byte more fits: whatever is refused then leaves everything as it was, and is no reason to refuse it later. */
static void edge_e7_a_full_disk_is_not_the_end(void **state) RT_UNCHECKED
{
    (void)state;
    struct rig *r = rig_open();
    const struct store_fault_plan empty = {0};
    struct store_fault_plan full = {.capacity = (uint64_t)1 << 30};
    uint64_t left;
    rng_seed(&r->rng, 1);
    assert_int_equal(store_disk_faulty(1, &empty, &r->disk), ERR_OK);
    r->faulty = false;
    assert_int_equal(boot(r), ERR_OK);
    struct edge_store *s = r->e->store;
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(fill(r, i), ERR_OK);
    remember(r);
    assert_int_equal(lengthen(r), ERR_OK);
    uint64_t long_log = s->log_bytes;
    store_disk_faulty_plan(r->disk, &full);
    assert_int_equal(store_disk_free_bytes(r->disk, s->dir, &left), ERR_OK);
    full.capacity -= left;
    store_disk_faulty_plan(r->disk, &full);
    record(r, 0, EDGE_DEL_REF);
    struct value now = look(r, 0);
    assert_true(same(&now, &r->before[0]));
    edge_store_upkeep(s, false); /* no second log */
    assert_int_equal(s->log_bytes, long_log);
    assert_false(atomic_load(&s->readonly));
    assert_true(atomic_load(&s->full));
    uint64_t objects = map_count(&s->catalog.objects);
    edge_store_look_for_room(s); /* what goes to make room needs none */
    assert_true(map_count(&s->catalog.objects) < objects);
    assert_false(atomic_load(&s->readonly));
    check_objects(r);
    remember(r);
    store_disk_faulty_plan(r->disk, &empty);
    assert_int_equal(fill(r, 1), ERR_OK);
    r->before[1] = r->wanted;
    edge_store_upkeep(s, false);
    assert_true(s->log_bytes < long_log);
    store_disk_faulty_cut(r->disk);
    down(r);
    store_disk_faulty_reboot(r->disk);
    assert_int_equal(boot(r), ERR_OK);
    r->touched = -2;
    check_after(r, "full disk", 0);
    down(r);
    store_disk_destroy(r->disk);
    rig_close(r);
}

/* The log cannot be flushed, and a new one cannot be written: from now on it only reads, and reads what it read before. */
static void edge_e7_a_store_that_only_reads_has_what_it_had(void **state) RT_UNCHECKED
{
    (void)state;
    struct rig *r = rig_open();
    bool only_reads = false;
    for (uint64_t at = 1; !only_reads; at++) { /* the call that is the flush */
        assert_true(at < 100);
        assert_int_equal(store_disk_faulty(at, &(struct store_fault_plan){0}, &r->disk), ERR_OK);
        r->faulty = false;
        rng_seed(&r->rng, 1);
        r->serial = 0;
        assert_int_equal(boot(r), ERR_OK);
        for (int i = 0; i < NAMES; i++)
            assert_int_equal(fill(r, i), ERR_OK);
        assert_int_equal(map_count(&r->e->store->catalog.refs), NAMES);
        remember(r);
        char in_the_way[STORE_PATH_MAX]; /* of a new log */
        snprintf(in_the_way, sizeof in_the_way, "%.400s/refs.log.tmp", r->e->store->dir);
        assert_int_equal(store_disk_mkdir(r->disk, in_the_way), ERR_OK);
        store_disk_faulty_plan(r->disk, &(struct store_fault_plan){.eio_at = at});
        enum err err = fill(r, 3); /* another object for a name that has one */
        only_reads = atomic_load(&r->e->store->readonly);
        store_disk_faulty_plan(r->disk, &(struct store_fault_plan){0});
        if (only_reads) {
            assert_int_not_equal(err, ERR_OK);
            for (int i = 0; i < NAMES; i++) {
                struct value now = look(r, i);
                assert_true(same(&now, &r->before[i]));
            }
            check_objects(r);
            assert_int_not_equal(fill(r, 4), ERR_OK);
        }
        down(r);
        store_disk_destroy(r->disk);
    }
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edge_e2_bytes_that_come_again_take_the_place_of_damaged_ones),
        cmocka_unit_test(edge_e7_a_power_cut_anywhere_loses_nothing_acknowledged),
        cmocka_unit_test(edge_e4_after_a_failed_write_what_was_acknowledged_is_durable),
        cmocka_unit_test(edge_e4_a_full_disk_refuses_and_loses_nothing),
        cmocka_unit_test(edge_e7_a_full_disk_is_not_the_end),
        cmocka_unit_test(edge_e7_a_store_that_only_reads_has_what_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
