/* The framed door's reads of the log: entries, roots, inclusion proofs. What may be seen is judged as over HTTP. */
#include "services/ledger/api/oap_internal.h"
#include "svc/svc.h"

enum { ENTRIES_DEFAULT = 100, ENTRIES_MAX = 1000, ROOTS_DEFAULT = 1000, ROOTS_MAX = 10000 };

static void problem_of(struct net_oap_req *rq, enum err err)
{
    if (err == ERR_NOT_FOUND)
        net_oap_reply_problem(rq, ERR_NOT_FOUND, "not in the log, or beyond its head");
    else
        net_oap_reply_problem(rq, err == ERR_NO_MEMORY ? ERR_BUSY : ERR_UNAVAILABLE, "cannot be read now");
}

/* ---- entries ---- */

static Ron__Ledger__V1__EntryInfo *info_out(struct ledger *l, struct arena *a,
                                            const struct ledger_unit_facts *f, uint32_t i)
{
    Ron__Ledger__V1__EntryInfo *out = arena_alloc(a, sizeof *out);
    if (out == NULL)
        return NULL;
    ron__ledger__v1__entry_info__init(out);
    out->seq = f->seq + i;
    out->ledger_ms = f->group.ledger_ms;
    out->unit_seq_start = f->seq;
    out->unit_seq_end = f->seq + f->n - 1;
    out->leaf_hash = ledger_oap__hash(a, &f->leaf_hashes[i]);
    out->leaf = ledger_oap__text(a, f->leaves[i]);
    out->idem_id = ledger_oap__text(a, f->unit.idem_id);
    out->entry = ledger_oap__entry(a, &f->entries[i]);
    struct money m = {0};
    if (f->entries[i].kind == CORE_HOLD) {
        out->open =
            ledger_state_read_hold(l->state, ledger_canon_id_key(f->entries[i].id), &m) && m.units != 0;
        out->remaining = (uint64_t)m.units;
        out->remaining_hi = (uint64_t)(m.units >> 64);
    } else {
        m = ledger_state_read_reversed(l->state, out->seq);
        out->reversed = (uint64_t)m.units;
        out->reversed_hi = (uint64_t)(m.units >> 64);
    }
    return out->entry == NULL ? NULL : out;
}

static enum err one_entry(struct ledger *l, const struct ledger_oap_read *r, struct arena *a,
                          Ron__Ledger__V1__Entries *out) RT_BLOCKS
{
    struct ledger_unit_facts f;
    uint32_t i = 0;
    enum err err = ledger_find_entry(l, r->text, a, &f, &i);
    if (err != ERR_OK)
        return err;
    const struct core_entry *e = &f.entries[i];
    if (!ledger_covers(r->cap, e->account) && (e->to.n == 0 || !ledger_covers(r->cap, e->to)))
        return ERR_NOT_FOUND;
    out->entries = arena_array(a, 1, sizeof *out->entries);
    if (out->entries == NULL || (out->entries[0] = info_out(l, a, &f, i)) == NULL)
        return ERR_NO_MEMORY;
    out->n_entries = 1;
    return ERR_OK;
}

static enum err some_entries(struct ledger *l, const struct ledger_oap_read *r, struct arena *a,
                             Ron__Ledger__V1__Entries *out) RT_BLOCKS
{
    uint64_t seq = r->a;
    enum err err = ERR_OK;
    out->entries = arena_array(a, r->b, sizeof *out->entries);
    if (out->entries == NULL)
        return ERR_NO_MEMORY;
    struct ledger_unit_facts f = {.n = 0};
    while (err == ERR_OK && out->n_entries < r->b && seq <= out->as_of_seq) {
        uint32_t i = 0;
        err = f.n == 0 ? ledger_find_seq(l, seq, a, &f, &i) : ledger_find_behind(l, a, &f);
        for (; err == ERR_OK && i < f.n && out->n_entries < r->b; i++, seq++) {
            out->entries[out->n_entries] = info_out(l, a, &f, i);
            err = out->entries[out->n_entries++] == NULL ? ERR_NO_MEMORY : ERR_OK;
        }
    }
    out->next = seq <= out->as_of_seq ? seq : 0;
    return err;
}

static void run_entries(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct ledger_oap_read *r = (struct ledger_oap_read *)read;
    struct auth_cap *cap = r->cap; /* r lives with the request, and that ends with the answer */
    struct arena a;
    arena_init(&a, 64 << 10, 256 << 20);
    Ron__Ledger__V1__Entries out;
    ron__ledger__v1__entries__init(&out);
    out.as_of_seq = ledger_head_seq(s->l);
    enum err err = r->text.n != 0 ? one_entry(s->l, r, &a, &out) : some_entries(s->l, r, &a, &out);
    if (err == ERR_OK)
        ledger_oap__reply(r->rq, &out.base);
    else
        problem_of(r->rq, err);
    auth_cap_release(cap);
    arena_fini(&a);
}

void ledger_oap__entries(struct ledger_service *s, struct net_oap_req *rq)
{
    ProtobufCAllocator alloc = ledger_oap__allocator(net_oap_req_arena(rq));
    struct bytes in = net_oap_req_payload(rq);
    Ron__Ledger__V1__EntriesRequest *m = ron__ledger__v1__entries_request__unpack(&alloc, in.n, in.p);
    struct ledger_oap_read r = {0};
    bool by_id = m != NULL && m->id != NULL && m->id[0] != 0;
    if (m == NULL || (by_id && (m->from != 0 || m->limit != 0)) || m->limit > ENTRIES_MAX) {
        net_oap_reply_problem(rq, ERR_BAD_REQUEST, "an id, or from and a limit up to %d", ENTRIES_MAX);
        return;
    }
    if (by_id)
        r.text = str_from_c(m->id);
    r.a = m->from == 0 ? 1 : m->from;
    r.b = m->limit == 0 ? ENTRIES_DEFAULT : m->limit;
    if (!ledger_oap__may_read(s, rq, (struct str){NULL, 0}, &r.cap))
        return;
    if (!by_id && auth_cap_has(r.cap, AUTH_CV_ACCOUNT)) {
        auth_cap_release(r.cap);
        net_oap_reply_problem(rq, ERR_FORBIDDEN, "this shows every account; the capability is for some");
        return;
    }
    ledger_oap__read(s, rq, r, run_entries);
}

/* ---- roots ---- */

static enum err roots_from(struct ledger *l, const struct ledger_oap_read *r, struct arena *a,
                           Ron__Ledger__V1__Roots *out) RT_BLOCKS
{
    struct ledger_head head;
    struct ledger_group_row g;
    ledger_head_read(l, &head);
    uint64_t index = head.group_no;
    enum err err = r->a >= head.seq ? ERR_OK : ledger_group_of(l, r->a + 1, &g, &index);
    uint64_t n = head.group_no - index < r->b ? head.group_no - index : r->b;
    out->next_since = r->a;
    out->roots = arena_array(a, n + 1, sizeof *out->roots);
    if (err == ERR_OK && out->roots == NULL)
        err = ERR_NO_MEMORY;
    for (; err == ERR_OK && out->n_roots < n; index++) {
        Ron__Ledger__V1__Root *row = arena_alloc(a, sizeof *row);
        err = row == NULL ? ERR_NO_MEMORY : ledger_group_at(l, index, &g);
        if (err != ERR_OK)
            break;
        ron__ledger__v1__root__init(row);
        row->seq = out->next_since = g.last_seq;
        row->root = ledger_oap__hash(a, &g.root);
        row->group_no = g.group_no;
        row->ledger_ms = g.ledger_ms;
        out->roots[out->n_roots++] = row;
    }
    return err;
}

static void run_roots(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct ledger_oap_read *r = (struct ledger_oap_read *)read;
    struct auth_cap *cap = r->cap;
    struct arena a;
    arena_init(&a, 64 << 10, 16 << 20);
    Ron__Ledger__V1__Roots out;
    ron__ledger__v1__roots__init(&out);
    enum err err = roots_from(s->l, r, &a, &out);
    if (err == ERR_OK)
        ledger_oap__reply(r->rq, &out.base);
    else
        problem_of(r->rq, err);
    auth_cap_release(cap);
    arena_fini(&a);
}

void ledger_oap__roots(struct ledger_service *s, struct net_oap_req *rq)
{
    ProtobufCAllocator alloc = ledger_oap__allocator(net_oap_req_arena(rq));
    struct bytes in = net_oap_req_payload(rq);
    Ron__Ledger__V1__RootsRequest *m = ron__ledger__v1__roots_request__unpack(&alloc, in.n, in.p);
    struct ledger_oap_read r = {0};
    if (m == NULL || m->limit > ROOTS_MAX) {
        net_oap_reply_problem(rq, ERR_BAD_REQUEST, "not a RootsRequest, or a limit over %d", ROOTS_MAX);
        return;
    }
    r.a = m->since;
    r.b = m->limit == 0 ? ROOTS_DEFAULT : m->limit;
    if (ledger_oap__may_read(s, rq, (struct str){NULL, 0}, &r.cap))
        ledger_oap__read(s, rq, r, run_roots);
}

/* ---- inclusion ---- */

static void run_inclusion(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct ledger_oap_read *r = (struct ledger_oap_read *)read;
    struct auth_cap *cap = r->cap;
    struct ledger_proven p;
    ProtobufCBinaryData parts[MERKLE_PATH_MAX];
    struct arena a;
    uint64_t size = r->b == 0 ? ledger_head_seq(s->l) : r->b;
    arena_init(&a, 4096, 65536);
    enum err err = ledger_prove_inclusion(s->l, r->a, size, &p);
    if (err == ERR_OK) {
        Ron__Ledger__V1__Inclusion out;
        ron__ledger__v1__inclusion__init(&out);
        for (size_t i = 0; i < p.n; i++)
            parts[i] = (ProtobufCBinaryData){32, p.path[i].b};
        out.seq = r->a;
        out.tree_size = size;
        out.leaf_hash = (ProtobufCBinaryData){32, p.leaf.b};
        out.root = (ProtobufCBinaryData){32, p.root.b};
        out.path = parts;
        out.n_path = p.n;
        out.checkpoint = ledger_oap__text(&a, ledger_note_text(s, size, &a));
        ledger_oap__reply(r->rq, &out.base);
    } else {
        problem_of(r->rq, err);
    }
    auth_cap_release(cap);
    arena_fini(&a);
}

void ledger_oap__inclusion(struct ledger_service *s, struct net_oap_req *rq)
{
    ProtobufCAllocator alloc = ledger_oap__allocator(net_oap_req_arena(rq));
    struct bytes in = net_oap_req_payload(rq);
    Ron__Ledger__V1__InclusionRequest *m = ron__ledger__v1__inclusion_request__unpack(&alloc, in.n, in.p);
    struct ledger_oap_read r = {0};
    if (m == NULL) {
        net_oap_reply_problem(rq, ERR_BAD_REQUEST, "not an InclusionRequest");
        return;
    }
    r.a = m->seq;
    r.b = m->size;
    if (ledger_oap__may_read(s, rq, (struct str){NULL, 0}, &r.cap))
        ledger_oap__read(s, rq, r, run_inclusion);
}
