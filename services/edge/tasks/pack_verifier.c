/*
 * pack_verifier: reloads on demand, seals what is new in short turns between which everybody else gets his, writes down
 * digests that requests had to compute, lets go of what was replaced, and looks every second whether a mounted file changed in
 * place.
 */
#include <stdio.h>
#include <stdlib.h>

#include "services/edge/reload.h"
#include "services/edge/retired.h"
#include "services/edge/seal.h"
#include "svc/feed.h"

enum { TAG_BATCH = 64, CHECK_MS = 1000, RELOAD_GAP_MS = 5000 };

struct verifier {
    struct edge *e;
    struct edge_seal seal;
    int64_t checked_ns, reloaded_ns;
    uint64_t generation; /* whose packs were all looked at */
};

/* ---- sealing ---- */

RT_BLOCKS
static void seal_begin(struct verifier *v)
{
    struct edge_generation *g = edge_pin(v->e);
    struct edge_pack *p = NULL;
    for (size_t i = 0; g->number != v->generation && i < g->n && !p; i++)
        if (edge_config(v->e)->packs_seal_rate && edge_seal_wanted(g->slots[i].pack))
            p = edge_pack_ref(g->slots[i].pack);
    if (!p)
        v->generation = g->number;
    edge_unpin(g);
    if (p && edge_seal_begin(&v->seal, v->e, p) != ERR_OK)
        v->generation = 0; /* later again */
    edge_pack_unref(p);
}

/* What was replaced meanwhile need not be known any better. */
static void seal_forget_replaced(struct verifier *v, const struct edge_generation *now)
{
    const struct edge_pack *p = v->seal.pack;
    const struct edge_slot *slot = p ? edge_slot_find(now, str_from_c(p->name)) : NULL;
    if (p && (!slot || slot->pack != p))
        edge_seal_end(&v->seal);
}

/* How many bytes that was. */
RT_BLOCKS
static uint64_t seal_some(struct verifier *v)
{
    struct edge_pack *p = v->seal.pack;
    uint64_t bytes = 0;
    enum err err = edge_seal_step(&v->seal, &bytes);
    if (err != ERR_OK && err != ERR_EMPTY) {
        if (err == ERR_CORRUPT) /* it would be mounted, and found so, again and again */
            atomic_store(&p->damaged, true);
        edge_file_set_changed(p->file);
        obs_log(svc_log(v->e->svc), OBS_WARN, "pack_unreadable", OBS_STR("pack", (const char *)p->name),
                OBS_ERR(err), OBS_END);
    }
    if (err != ERR_OK)
        edge_seal_end(&v->seal);
    return bytes;
}

/* ---- digests computed by requests ---- */

RT_BLOCKS
static void write_tags(struct verifier *v)
{
    void *notes[TAG_BATCH];
    size_t n = 0;
    if (rt_chan_try_recv_batch(v->e->tags, notes, TAG_BATCH, &n) != ERR_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        struct edge_tag_note *note = notes[i];
        if (edge_tags_put(&note->pack->tags, &note->tag) != ERR_OK)
            note->pack->tags.full = true;
        edge_pack_unref(note->pack);
        free(note);
    }
}

/* ---- reloads ---- */

/* What is said to those who asked at the same time differs only in the names that mean nothing. */
static void refuse_unknown(const struct edge_call *c, const struct edge_generation *before,
                           const struct edge_generation *after, struct edge_reload *out)
{
    for (size_t i = 0; i < c->names_n; i++) {
        char name[EDGE_PACK_NAME_MAX + 1];
        if (edge_slot_find(before, c->names[i]) || edge_slot_find(after, c->names[i]))
            continue;
        snprintf(name, sizeof name, "%.*s", STR_ARG(c->names[i]));
        edge_reload_refuse(out, name, "there is no such pack");
    }
}

static void answer(const struct edge_call *c, enum err err, struct edge_reload *done,
                   const struct edge_generation *before, const struct edge_generation *after)
{
    struct edge_reload mine;
    struct buf body;
    if (err != ERR_OK) {
        net_reply_problem(c->rq, err, "the packs could not be looked at");
        return;
    }
    edge_reload_init(&mine);
    refuse_unknown(c, before, after, &mine);
    buf_init(&body, 1 << 19);
    if (done->refused_n || mine.refused_n) {
        buf_printf(&body, "{\"packs\":[%s%s%s]}", buf_cstr(&done->refused),
                   done->refused_n && mine.refused_n ? "," : "", buf_cstr(&mine.refused));
        net_reply_problem_details(c->rq, ERR_PACK_INVALID,
                                  done->refused_n ? "a pack was refused; the good ones are live"
                                                  : "there is no such pack; the others are live",
                                  buf_bytes(&body));
    } else {
        buf_printf(
            &body,
            "{\"generation\":%llu,\"done\":true,\"swapped\":[%s],\"unchanged\":[%s],\"removed\":[%s]}",
            (unsigned long long)done->generation, buf_cstr(&done->swapped), buf_cstr(&done->unchanged),
            buf_cstr(&done->removed));
        net_reply_json(c->rq, 200, buf_bytes(&body));
    }
    buf_fini(&body);
    edge_reload_fini(&mine);
}

RT_BLOCKS
static void reload(struct verifier *v)
{
    struct edge_reload r;
    struct edge_pack_op *op = edge_reload_begin(v->e);
    if (!op)
        return;
    edge_reload_init(&r);
    struct edge_generation *before = edge_pin(v->e);
    enum err err = edge_packs_reload(v->e, op->only, op->only_n, &r);
    struct edge_generation *after = edge_pin(v->e);
    v->reloaded_ns = edge_now_ns(v->e);
    seal_forget_replaced(v, after);
    for (struct edge_call *c = edge_reload_end(v->e, op), *next; c; c = next) {
        next = c->next; /* it goes with its request */
        answer(c, err, &r, before, after);
    }
    edge_unpin(before);
    edge_unpin(after);
    edge_reload_fini(&r);
}

/* Of a directory's files those know that open and send them. */
static bool as_mounted(struct edge_pack *p)
{
    return p->file ? edge_file_unchanged(p->file)
                   : !atomic_load_explicit(&p->outdated, memory_order_relaxed);
}

/* A file that was overwritten is not served any more; a reload finds out what is there now. */
static void check_files(struct verifier *v) RT_UNCHECKED
{
    int64_t now = edge_now_ns(v->e);
    if (now - v->checked_ns < CHECK_MS * 1000000LL)
        return;
    v->checked_ns = now;
    struct edge_generation *g = edge_pin(v->e);
    bool changed = false;
    for (size_t i = 0; i < g->n; i++) {
        struct edge_slot *slot = &g->slots[i];
        if (!slot->pack || as_mounted(slot->pack))
            continue;
        if (slot->state != EDGE_CHANGED) {
            svc_feed_tell(v->e->events, "pack_changed", "{\"pack\":\"%s\"}", slot->name);
            obs_log(svc_log(v->e->svc), OBS_WARN, "pack_changed", OBS_STR("pack", (const char *)slot->name),
                    OBS_END);
            obs_gauge_set(OBS_GAUGE_OF(v->e->m[EDGE_M_pack_state], slot->name, "mounted"), 0);
            obs_gauge_set(OBS_GAUGE_OF(v->e->m[EDGE_M_pack_state], slot->name, "changed"), 1);
        }
        slot->state = EDGE_CHANGED;
        changed = true;
    }
    edge_unpin(g);
    if (changed) {
        atomic_store(&v->e->packs_ok, false);
        if (now - v->reloaded_ns > RELOAD_GAP_MS * 1000000LL &&
            edge_request_reload(v->e, NULL, 0, NULL) == ERR_CLOSED)
            v->reloaded_ns = now; /* draining; otherwise the next check asks again */
    }
}

enum err edge_pack_verifier_run(struct rt_task *self, void *arg)
{
    struct verifier v = {.e = arg};
    enum err err = ERR_OK;
    edge_turns_begin(&v.e->turns, self, v.e->svc);
    if (v.e->packs_unread && edge_request_reload(v.e, NULL, 0, NULL) == ERR_OK)
        v.e->packs_unread = false;
    while (!rt_task_stopping(self)) {
        void *op;
        uint64_t bytes = 0;
        bool busy = v.seal.pack != NULL || rt_chan_depth(v.e->tags) > 0;
        err = busy ? rt_chan_try_recv(v.e->pack_ops, &op)
                   : rt_chan_recv(v.e->pack_ops, deadline_in_ms(200), &op);
        if (!busy)
            edge_turns_fresh(&v.e->turns);
        if (err == ERR_OK)
            reload(&v);
        else if (err != ERR_TIMEOUT && err != ERR_EMPTY)
            break;
        write_tags(&v);
        check_files(&v);
        edge_retired_sweep(v.e);
        if (!v.seal.pack)
            seal_begin(&v);
        if (v.seal.pack)
            bytes = seal_some(&v);
        if (edge_turns_next(&v.e->turns, bytes, edge_config(v.e)->packs_seal_rate) != ERR_OK)
            break;
    }
    edge_turns_end(&v.e->turns);
    edge_seal_end(&v.seal);
    return rt_task_stopping(self) || err == ERR_CLOSED ? ERR_OK
           : err == ERR_TIMEOUT || err == ERR_EMPTY    ? ERR_OK
                                                       : err;
}
