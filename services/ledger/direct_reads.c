/*
 * Reads of the direct client. What may touch the disk waits its turn in read_tx and is answered by a reader; account and head
 * are in RAM and are answered on the caller's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "services/ledger/api/api.h"
#include "services/ledger/direct_internal.h"

/* One read on its way through read_tx. */
struct direct_read {
    struct ledger_read read;
    struct direct *d;
    void *fn; /* of the kind that `read.run` knows */
    void *ctx;
    uint64_t a, b;
    int64_t until_ns;
    char text[CORE_ID_MAX + 1];
    size_t n;
    union {
        ledger_unit_fn *unit;
        ledger_entries_fn *entries;
        ledger_roots_fn *roots;
        ledger_proof_fn *proof;
    } to;
};

static void read_over(struct direct_read *r)
{
    struct direct *d = r->d;
    free(r);
    atomic_fetch_sub(&d->open_calls, 1);
}

static struct direct_read *read_new(struct direct *d, struct str text, uint64_t a, uint64_t b, void *ctx)
{
    struct direct_read *r = calloc(1, sizeof *r);
    if (r == NULL || text.n > CORE_ID_MAX)
        return free(r), NULL;
    r->d = d;
    r->ctx = ctx;
    r->a = a;
    r->b = b;
    r->n = text.n;
    memcpy(r->text, text.n == 0 ? "" : text.p, text.n);
    return r;
}

/* ERR_OK: it is on its way. */
static enum err read_send(struct direct_read *r, void (*run)(struct ledger_service *, struct ledger_read *))
{
    if (r == NULL)
        return ERR_BUSY;
    r->read.run = run;
    atomic_fetch_add(&r->d->open_calls, 1);
    enum err err = atomic_load(&r->d->closed) ? ERR_CLOSED : ledger_read_submit(r->d->s, &r->read);
    if (err != ERR_OK)
        read_over(r);
    return err;
}

static void run_unit(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger *l = s->l;
    struct arena a;
    struct ledger_unit_facts f;
    struct ledger_unit_reply reply = {.a = ledger_direct__answered};
    struct str id = str_of(r->text, r->n);
    arena_init(&a, 64 << 10, 64 << 20);
    /* Time before the look: "not found, and past its not_after" must not miss one that commits in between. */
    reply.ledger_ms = atomic_load(&l->ledger_ms);
    bool pending = ledger_jobs_is_pending(&l->jobs, ledger_canon_idem_key(id));
    enum err err = ledger_find_unit(l, id, &a, &f);
    int64_t now = l->deps.clock->mono_ns(l->deps.clock->ctx);
    if (err == ERR_NOT_FOUND && pending && now < r->until_ns) {
        ledger_nap();
        if (ledger_read_submit(s, read) == ERR_OK) { /* to the end of the queue: it is looked at again */
            arena_fini(&a);
            return;
        }
    }
    if (err == ERR_OK) {
        struct ledger_entry *e = arena_array(&a, f.n, sizeof *e);
        uint8_t *meta = arena_alloc(&a, CORE_META_MAX);
        char *envelope = arena_alloc(&a, CANON_ENVELOPE_MAX);
        size_t n = 0;
        for (uint32_t i = 0; e != NULL && i < f.n; i++)
            e[i] = ledger_direct__entry_out(&f.entries[i]);
        if (meta != NULL && f.unit.meta.n != 0 &&
            base64_decode(f.unit.meta, meta, CORE_META_MAX, &n) != ERR_OK)
            n = 0;
        reply.found = true;
        reply.result = (struct ledger_result){.idem_id = f.unit.idem_id,
                                              .status = LEDGER_COMMITTED,
                                              .seq_start = f.seq,
                                              .seq_end = f.seq + f.n - 1,
                                              .tree_size = f.group.last_seq,
                                              .ledger_ms = f.group.ledger_ms,
                                              .root = f.group.root,
                                              .leaf_hashes = f.leaf_hashes,
                                              .n_leaf_hashes = f.n,
                                              .entries = e,
                                              .n_entries = e == NULL ? 0 : f.n,
                                              .meta = bytes_of(meta, n),
                                              .kid = f.who.kid};
        if (envelope != NULL)
            reply.result.envelope =
                str_of(envelope, ledger_canon_envelope(&f.unit, &f.who, &f.read.record.fp, envelope));
    } else if (err == ERR_NOT_FOUND && pending) {
        reply.found = true;
        reply.result = (struct ledger_result){.idem_id = id, .status = LEDGER_PENDING};
    } else if (err != ERR_NOT_FOUND) {
        reply.a = ledger_direct__refused(ERR_UNAVAILABLE);
    }
    r->to.unit(r->ctx, &reply);
    arena_fini(&a);
    read_over(r);
}

void ledger_direct__unit(struct ledger_client *c, struct str idem_id, uint32_t wait_ms, struct deadline by,
                         ledger_unit_fn *fn, void *ctx)
{
    struct direct *d = ledger_direct__of(c);
    if (!ledger_id_ok(idem_id)) {
        struct ledger_unit_reply reply = {.a = ledger_direct__refused(ERR_BAD_REQUEST)};
        fn(ctx, &reply);
        return;
    }
    struct direct_read *r = read_new(d, idem_id, 0, 0, ctx);
    if (r != NULL) {
        r->to.unit = fn;
        int64_t until = d->s->l->deps.clock->mono_ns(d->s->l->deps.clock->ctx) + (int64_t)wait_ms * 1000000;
        r->until_ns = until < by.at_ns ? until : by.at_ns;
    }
    enum err err = read_send(r, run_unit);
    if (err != ERR_OK) {
        struct ledger_unit_reply reply = {.a = ledger_direct__refused(err)};
        fn(ctx, &reply);
    }
}

void ledger_direct__account(struct ledger_client *c, struct str account, uint64_t min_seq,
                            struct deadline by, ledger_account_fn *fn, void *ctx)
{
    struct direct *d = ledger_direct__of(c);
    struct ledger *l = d->s->l;
    struct ledger_head head;
    struct ledger_account_read read = {0};
    struct ledger_account_reply reply = {.a = ledger_direct__answered, .account = account};
    enum err err = ERR_BUSY;
    while (err == ERR_BUSY && !deadline_passed(by)) {
        ledger_head_read(l, &head);
        err = ledger_state_read_account(l->state, account, head.seq, &read);
    }
    struct ledger_balance *b = err == ERR_OK ? calloc(read.n_balances + 1, sizeof *b) : NULL;
    struct ledger_lane *lanes = err == ERR_OK ? calloc(read.n_lanes + 1, sizeof *lanes) : NULL;
    if (err != ERR_OK || b == NULL || lanes == NULL) {
        reply.a = ledger_direct__refused(ERR_TIMEOUT);
    } else if (head.seq < min_seq) {
        reply.a = ledger_direct__refused(ERR_BEHIND);
        reply.as_of_seq = head.seq;
    } else {
        for (size_t i = 0; i < read.n_balances; i++)
            b[i] = (struct ledger_balance){account, read.balances[i].asset, read.balances[i].available,
                                           read.balances[i].held};
        for (size_t i = 0; i < read.n_lanes; i++)
            lanes[i] =
                (struct ledger_lane){read.lanes[i].lane, (uint64_t)read.lanes[i].lane << CORE_LANE_SHIFT |
                                                             read.lanes[i].counter};
        reply.balances = b;
        reply.n_balances = read.n_balances;
        reply.lanes = lanes;
        reply.n_lanes = read.n_lanes;
        reply.as_of_seq = head.seq;
        reply.root = head.root;
    }
    fn(ctx, &reply);
    free(b);
    free(lanes);
    ledger_account_read_fini(&read);
}

static void info_out(struct ledger *l, const struct ledger_unit_facts *f, uint32_t i,
                     struct ledger_entry_info *out)
{
    *out = (struct ledger_entry_info){.seq = f->seq + i,
                                      .ledger_ms = f->group.ledger_ms,
                                      .unit_seq_start = f->seq,
                                      .unit_seq_end = f->seq + f->n - 1,
                                      .leaf_hash = f->leaf_hashes[i],
                                      .leaf = f->leaves[i],
                                      .idem_id = f->unit.idem_id,
                                      .entry = ledger_direct__entry_out(&f->entries[i])};
    if (f->entries[i].kind == CORE_HOLD)
        out->open =
            ledger_state_read_hold(l->state, ledger_canon_id_key(f->entries[i].id), &out->remaining) &&
            out->remaining.units != 0;
    else
        out->reversed = ledger_state_read_reversed(l->state, out->seq);
}

static void run_entry(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct arena a;
    struct ledger_unit_facts f;
    struct ledger_entry_info info;
    struct ledger_entries_reply reply = {.a = ledger_direct__answered};
    uint32_t i = 0;
    arena_init(&a, 64 << 10, 64 << 20);
    enum err err = ledger_find_entry(s->l, str_of(r->text, r->n), &a, &f, &i);
    if (err == ERR_OK) {
        info_out(s->l, &f, i, &info);
        reply.entries = &info;
        reply.n_entries = 1;
        reply.as_of_seq = ledger_head_seq(s->l);
    } else {
        reply.a = ledger_direct__refused(err == ERR_NOT_FOUND ? ERR_NOT_FOUND : ERR_UNAVAILABLE);
    }
    r->to.entries(r->ctx, &reply);
    arena_fini(&a);
    read_over(r);
}

static void run_entries(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct arena a;
    struct ledger_entries_reply reply = {.a = ledger_direct__answered, .as_of_seq = ledger_head_seq(s->l)};
    arena_init(&a, 256 << 10, 256 << 20);
    struct ledger_entry_info *v = arena_array(&a, r->b, sizeof *v);
    uint64_t seq = r->a;
    enum err err = v == NULL ? ERR_NO_MEMORY : ERR_OK;
    while (err == ERR_OK && reply.n_entries < r->b && seq <= reply.as_of_seq) {
        struct ledger_unit_facts f;
        uint32_t i = 0;
        err = ledger_find_seq(s->l, seq, &a, &f, &i);
        for (; err == ERR_OK && i < f.n && reply.n_entries < r->b; i++, seq++)
            info_out(s->l, &f, i, &v[reply.n_entries++]);
    }
    reply.entries = v;
    reply.next = seq <= reply.as_of_seq ? seq : 0;
    if (err != ERR_OK)
        reply = (struct ledger_entries_reply){.a = ledger_direct__refused(ERR_UNAVAILABLE)};
    r->to.entries(r->ctx, &reply);
    arena_fini(&a);
    read_over(r);
}

static void entries_send(struct direct *d, struct str id, uint64_t from, uint32_t limit,
                         ledger_entries_fn *fn, void *ctx,
                         void (*run)(struct ledger_service *, struct ledger_read *))
{
    struct direct_read *r = read_new(d, id, from, limit, ctx);
    if (r != NULL)
        r->to.entries = fn;
    enum err err = read_send(r, run);
    if (err != ERR_OK) {
        struct ledger_entries_reply reply = {.a = ledger_direct__refused(err)};
        fn(ctx, &reply);
    }
}

void ledger_direct__entry(struct ledger_client *c, struct str id, struct deadline by, ledger_entries_fn *fn,
                          void *ctx)
{
    (void)by;
    entries_send(ledger_direct__of(c), id, 0, 0, fn, ctx, run_entry);
}

void ledger_direct__entries(struct ledger_client *c, uint64_t from, uint32_t limit, struct deadline by,
                            ledger_entries_fn *fn, void *ctx)
{
    (void)by;
    entries_send(ledger_direct__of(c), (struct str){NULL, 0}, from == 0 ? 1 : from,
                 limit == 0     ? 100
                 : limit > 1000 ? 1000
                                : limit,
                 fn, ctx, run_entries);
}

static void run_roots(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger_head head;
    struct ledger_group_row g;
    struct ledger_roots_reply reply = {.a = ledger_direct__answered, .next_since = r->a};
    ledger_head_read(s->l, &head);
    uint64_t index = head.group_no;
    struct ledger_root *v = calloc(r->b, sizeof *v);
    enum err err = v == NULL          ? ERR_NO_MEMORY
                   : r->a >= head.seq ? ERR_OK
                                      : ledger_group_of(s->l, r->a + 1, &g, &index);
    for (; err == ERR_OK && reply.n_roots < r->b && index < head.group_no; index++) {
        err = ledger_group_at(s->l, index, &g);
        if (err != ERR_OK)
            break;
        v[reply.n_roots++] = (struct ledger_root){g.last_seq, g.group_no, g.ledger_ms, g.root};
        reply.next_since = g.last_seq;
    }
    reply.roots = v;
    if (err != ERR_OK)
        reply = (struct ledger_roots_reply){.a = ledger_direct__refused(ERR_UNAVAILABLE)};
    r->to.roots(r->ctx, &reply);
    free(v);
    read_over(r);
}

void ledger_direct__roots(struct ledger_client *c, uint64_t since, uint32_t limit, struct deadline by,
                          ledger_roots_fn *fn, void *ctx)
{
    (void)by;
    struct direct_read *r = read_new(ledger_direct__of(c), (struct str){NULL, 0}, since,
                                     limit == 0      ? 1000
                                     : limit > 10000 ? 10000
                                                     : limit,
                                     ctx);
    if (r != NULL)
        r->to.roots = fn;
    enum err err = read_send(r, run_roots);
    if (err != ERR_OK) {
        struct ledger_roots_reply reply = {.a = ledger_direct__refused(err)};
        fn(ctx, &reply);
    }
}

static void proof_over(struct direct_read *r, enum err err, const struct ledger_proven *p,
                       struct ledger_proof_reply reply)
{
    if (err == ERR_OK) {
        reply.root = p->root;
        reply.path = p->path;
        reply.n_path = p->n;
    } else
        reply = (struct ledger_proof_reply){
            .a = ledger_direct__refused(err == ERR_NOT_FOUND ? err : ERR_UNAVAILABLE)};
    r->to.proof(r->ctx, &reply);
    read_over(r);
}

static void run_proof(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger_proven p;
    struct arena a;
    uint64_t size = r->b == 0 ? ledger_head_seq(s->l) : r->b;
    struct ledger_proof_reply reply = {.a = ledger_direct__answered, .seq = r->a, .tree_size = size};
    arena_init(&a, 4096, 65536);
    enum err err = ledger_prove_inclusion(s->l, r->a, size, &p);
    if (err == ERR_OK) {
        reply.leaf_hash = p.leaf;
        reply.checkpoint = ledger_note_text(s, size, &a);
    }
    proof_over(r, err, &p, reply);
    arena_fini(&a);
}

static void run_consistency(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct direct_read *r = (struct direct_read *)read;
    struct ledger_proven p;
    uint64_t to = r->b == 0 ? ledger_head_seq(s->l) : r->b;
    struct ledger_proof_reply reply = {.a = ledger_direct__answered, .seq = r->a, .tree_size = to};
    enum err err = ledger_prove_consistency(s->l, r->a, to, &p);
    if (err == ERR_OK)
        reply.from_root = p.from_root;
    proof_over(r, err, &p, reply);
}

static void proof_send(struct ledger_client *c, uint64_t a, uint64_t b, ledger_proof_fn *fn, void *ctx,
                       void (*run)(struct ledger_service *, struct ledger_read *))
{
    struct direct_read *r = read_new(ledger_direct__of(c), (struct str){NULL, 0}, a, b, ctx);
    if (r != NULL)
        r->to.proof = fn;
    enum err err = read_send(r, run);
    if (err != ERR_OK) {
        struct ledger_proof_reply reply = {.a = ledger_direct__refused(err)};
        fn(ctx, &reply);
    }
}

void ledger_direct__proof(struct ledger_client *c, uint64_t seq, uint64_t size, struct deadline by,
                          ledger_proof_fn *fn, void *ctx)
{
    (void)by;
    proof_send(c, seq, size, fn, ctx, run_proof);
}

void ledger_direct__consistency(struct ledger_client *c, uint64_t from, uint64_t to, struct deadline by,
                                ledger_proof_fn *fn, void *ctx)
{
    (void)by;
    proof_send(c, from, to, fn, ctx, run_consistency);
}

void ledger_direct__head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    (void)by;
    struct direct *d = ledger_direct__of(c);
    struct ledger_head head;
    struct obs_health_view view;
    ledger_head_read(d->s->l, &head);
    obs_health_read(svc_health(d->s->svc), &view);
    struct ledger_head_reply reply = {.a = ledger_direct__answered,
                                      .ready = view.ready && !svc_draining(d->s->svc),
                                      .safe_mode = ledger_safe_cause(d->s->l) != CAUSE_NONE,
                                      .head_seq = head.seq,
                                      .group_no = head.group_no,
                                      .ledger_ms = atomic_load(&d->s->l->ledger_ms),
                                      .root = head.root};
    fn(ctx, &reply);
}
