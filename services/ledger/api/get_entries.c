/* GET /v1/units/{idem_id}, /v1/entries/{id}, /v1/entries: what the journal says, read by a reader. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/routes.h"

enum { POLL_MS = 5, BODY_MAX = 64 << 20 };

static struct ledger_http_read *of(struct ledger_read *r)
{
    return (struct ledger_http_read *)r;
}

static bool covers_unit(const struct auth_cap *cap, const struct ledger_unit_facts *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (ledger_covers(cap, f->entries[i].account) ||
            (f->entries[i].to.n != 0 && ledger_covers(cap, f->entries[i].to)))
            return true;
    return false;
}

/* `ledger_ms` was taken before the look: with it "not found" is final once it is past a unit's not_after. */
static void not_found(struct net_req *rq, uint64_t ledger_ms, const char *what)
{
    char details[64];
    int n = snprintf(details, sizeof details, "{\"ledger_ms\":%llu}", (unsigned long long)ledger_ms);
    net_reply_problem_details(rq, ERR_NOT_FOUND, what, bytes_of(details, (size_t)n));
}

/* ---- units ---- */

/* A unit that is pending is looked at again by a timer of the loop: no reader waits for it. */
struct unit_wait {
    struct net_timer timer;
    struct ledger_service *s;
    struct ledger_http_read read;
    int64_t until_ns;
};

static void run_unit(struct ledger_service *s, struct ledger_read *r);

static void wait_over(struct net_timer *t)
{
    struct unit_wait *w = (struct unit_wait *)((char *)t - offsetof(struct unit_wait, timer));
    ledger_http_read_send(w->s, w->read.rq, &w->read, run_unit);
}

struct wait_msg {
    struct net_msg msg;
    struct unit_wait *w;
};

static void wait_arm(struct net_msg *m)
{
    struct unit_wait *w = ((struct wait_msg *)m)->w;
    struct net_loop *loop = net_req_loop(w->read.rq);
    net_timer_set(loop, &w->timer, net_loop_now_ns(loop) + (int64_t)POLL_MS * 1000000);
}

static bool wait_more(struct ledger_service *s, struct ledger_http_read *h)
{
    int64_t now = s->l->deps.clock->mono_ns(s->l->deps.clock->ctx);
    if (h->started_ns + (int64_t)h->a * 1000000 <= now || net_req_gone(h->rq))
        return false;
    struct arena *a = net_req_arena(h->rq);
    struct unit_wait *w = arena_zalloc(a, sizeof *w);
    struct wait_msg *m = arena_zalloc(a, sizeof *m);
    if (w == NULL || m == NULL)
        return false;
    w->s = s;
    w->read = *h;
    w->timer.fn = wait_over;
    m->msg.fn = wait_arm;
    m->w = w;
    net_loop_post(net_req_loop(h->rq), &m->msg);
    return true;
}

static void run_unit(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct auth_cap *cap = h->cap; /* h lives with the request, and that ends with the answer */
    struct ledger *l = s->l;
    struct arena a;
    struct ledger_unit_facts f;
    struct buf b;
    struct json_w w;
    arena_init(&a, 64 << 10, 64 << 20);
    buf_init(&b, BODY_MAX);
    uint64_t ledger_ms = atomic_load(&l->ledger_ms);
    bool pending = ledger_jobs_is_pending(
        &l->jobs, ledger_canon_idem_key(h->text)); /* before the look: never both missed */
    enum err err = ledger_find_unit(l, h->text, &a, &f);
    if (err == ERR_OK && covers_unit(h->cap, &f)) {
        json_w_init(&w, &b);
        ledger_json_unit(&w, l, &f);
        net_reply_json(h->rq, 200, buf_bytes(&b));
    } else if (err == ERR_NOT_FOUND && pending) {
        if (wait_more(s, h)) {
            arena_fini(&a);
            buf_fini(&b);
            return; /* the capability goes along */
        }
        json_w_init(&w, &b);
        json_obj_begin(&w);
        json_put_str(&w, "idem_id", h->text);
        json_put_cstr(&w, "status", "pending");
        json_obj_end(&w);
        net_reply_json(h->rq, 202, buf_bytes(&b));
    } else if (err == ERR_OK || err == ERR_NOT_FOUND) {
        not_found(h->rq, ledger_ms, "no such unit now");
    } else {
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "the journal cannot be read");
    }
    auth_cap_release(cap);
    arena_fini(&a);
    buf_fini(&b);
}

void ledger_get_unit(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {.text = net_req_param(rq, "idem_id")};
    if (!ledger_id_ok(h.text)) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "not an idem_id");
        return;
    }
    if (!ledger_http_number(rq, "wait", 0, 0, 5000, &h.a) ||
        !ledger_http_access(s, rq, ACCESS_READ, &h.cap))
        return;
    h.started_ns = s->l->deps.clock->mono_ns(s->l->deps.clock->ctx);
    ledger_http_read_send(s, rq, &h, run_unit);
}

/* ---- one entry ---- */

static void run_entry(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct auth_cap *cap = h->cap; /* h lives with the request, and that ends with the answer */
    struct arena a;
    struct ledger_unit_facts f;
    uint32_t i = 0;
    arena_init(&a, 64 << 10, 64 << 20);
    enum err err = ledger_find_entry(s->l, h->text, &a, &f, &i);
    if (err == ERR_OK && (ledger_covers(h->cap, f.entries[i].account) ||
                          (f.entries[i].to.n != 0 && ledger_covers(h->cap, f.entries[i].to)))) {
        struct buf b;
        struct json_w w;
        buf_init(&b, BODY_MAX);
        json_w_init(&w, &b);
        ledger_json_entry_info(&w, s->l, &f, i);
        net_reply_json(h->rq, 200, buf_bytes(&b));
        buf_fini(&b);
    } else if (err == ERR_OK || err == ERR_NOT_FOUND) {
        not_found(h->rq, atomic_load(&s->l->ledger_ms), "no such entry");
    } else {
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "the journal cannot be read");
    }
    auth_cap_release(cap);
    arena_fini(&a);
}

void ledger_get_entry(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {.text = net_req_param(rq, "id")};
    if (!ledger_id_ok(h.text)) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "not an id");
        return;
    }
    if (ledger_http_access(s, rq, ACCESS_READ, &h.cap))
        ledger_http_read_send(s, rq, &h, run_entry);
}

/* ---- many entries ---- */

static void run_entries(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = of(r);
    struct auth_cap *cap = h->cap; /* h lives with the request, and that ends with the answer */
    struct ledger_head head;
    struct buf b;
    struct json_w w;
    struct arena a;
    ledger_head_read(s->l, &head);
    buf_init(&b, BODY_MAX);
    arena_init(&a, 256 << 10, 64 << 20);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "entries");
    json_arr_begin(&w);
    uint64_t seq = h->a, left = h->b;
    enum err err = ERR_OK;
    struct ledger_unit_facts f = {.n = 0};
    while (err == ERR_OK && left > 0 && seq <= head.seq) {
        uint32_t i = 0;
        arena_reset(&a);
        err = f.n == 0 ? ledger_find_seq(s->l, seq, &a, &f, &i) : ledger_find_behind(s->l, &a, &f);
        for (; err == ERR_OK && i < f.n && left > 0; i++, seq++, left--)
            ledger_json_entry_info(&w, s->l, &f, i);
    }
    json_arr_end(&w);
    if (seq <= head.seq)
        json_put_u64(&w, "next", seq);
    json_put_u64(&w, "as_of_seq", head.seq);
    json_obj_end(&w);
    if (err == ERR_OK && b.err == ERR_OK)
        net_reply_json(h->rq, 200, buf_bytes(&b));
    else
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "the journal cannot be read");
    auth_cap_release(cap);
    arena_fini(&a);
    buf_fini(&b);
}

void ledger_get_entries(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    if (ledger_http_number(rq, "from", 1, 1, UINT64_MAX / 2, &h.a) &&
        ledger_http_number(rq, "limit", 100, 1, 1000, &h.b) &&
        ledger_http_access(s, rq, ACCESS_READ_ALL, &h.cap))
        ledger_http_read_send(s, rq, &h, run_entries);
}
