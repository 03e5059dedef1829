/*
 * The shadow runs the service remembers: at most 16, newest last, for a day. A finished one lies on the disk and is
 * answered from there, so a restart forgets only those that were under way.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hex.h"
#include "base/json_write.h"
#include "services/rewarder/rewarder.h"

struct rewarder_shadow *rewarder_shadow_find(struct rewarder *r, const struct sha256 *id)
{
    struct rewarder_shadow *found = NULL;
    rt_lock_take(&r->registry.lock);
    for (size_t i = 0; i < r->shadow_n && !found; i++)
        if (sha256_eq(&r->shadows[i]->id, id))
            found = r->shadows[i];
    if (found)
        atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
    rt_lock_release(&r->registry.lock);
    return found;
}

static struct rewarder_shadow *take_out(struct rewarder *r, size_t i) RT_REQUIRES(&r->registry.lock)
{
    struct rewarder_shadow *s = r->shadows[i];
    memmove(r->shadows + i, r->shadows + i + 1, (r->shadow_n - i - 1) * sizeof *r->shadows);
    r->shadow_n--;
    return s;
}

/* A failed one makes way for another try. */
void rewarder_shadow_add(struct rewarder *r, struct rewarder_shadow *s)
{
    struct rewarder_shadow *gone = NULL, *same = NULL;
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    rt_lock_take(&r->registry.lock);
    for (size_t i = 0; i < r->shadow_n && !same; i++)
        if (sha256_eq(&r->shadows[i]->id, &s->id))
            same = take_out(r, i);
    if (r->shadow_n == REWARDER_SHADOWS_MAX)
        gone = take_out(r, 0);
    r->shadows[r->shadow_n++] = s;
    rt_lock_release(&r->registry.lock);
    rewarder_shadow_unref(gone);
    rewarder_shadow_unref(same);
}

struct rewarder_shadow *rewarder_shadow_take_old(struct rewarder *r, int64_t made_before_ms)
{
    struct rewarder_shadow *old = NULL;
    rt_lock_take(&r->registry.lock);
    for (size_t i = 0; i < r->shadow_n && !old; i++)
        if (r->shadows[i]->made_ms < made_before_ms)
            old = take_out(r, i);
    rt_lock_release(&r->registry.lock);
    return old;
}

void rewarder_shadow_unref(struct rewarder_shadow *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    rewarder_policy_unref(s->base);
    rewarder_policy_unref(s->candidate);
    buf_fini(&s->top);
    buf_fini(&s->csv);
    free(s);
}

/* ---- the body ---- */

static void put_side(struct json_w *w, const char *name, const struct rewarder_policy *p,
                     const struct rewarder_result *res, bool done)
{
    json_key(w, name);
    json_obj_begin(w);
    json_put_cstr(w, "policy_id", p->id);
    json_put_hash(w, "policy_hash", &p->hash);
    if (done) {
        json_put_money(w, "pool", (struct money){res->pool});
        json_put_money(w, "payouts", (struct money){res->payouts});
        json_put_money(w, "dust", (struct money){res->dust});
        json_put_u64(w, "paid", res->paid);
    }
    json_obj_end(w);
}

static void put_diff(struct json_w *w, struct rewarder_shadow *s)
{
    json_key(w, "diff");
    json_obj_begin(w);
    json_put_u64(w, "gained", s->gained);
    json_put_u64(w, "lost", s->lost);
    json_put_u64(w, "same", s->same);
    json_put_u64(w, "entered", s->entered);
    json_put_u64(w, "left", s->left);
    json_put_money(w, "moved", (struct money){s->moved});
    json_put_raw(w, "top", buf_str(&s->top));
    json_obj_end(w);
}

void rewarder_shadow_write(struct rewarder_shadow *s, bool done, struct buf *b)
{
    static const char *const names[] = {"queued", "computing", "done", "failed"};
    int state = done ? REWARDER_SHADOW_DONE : atomic_load_explicit(&s->state, memory_order_acquire);
    if (!done &&
        state ==
            REWARDER_SHADOW_DONE) /* just now: who is told `done` is shown the result, which is in the file */
        state = REWARDER_SHADOW_COMPUTING;
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    json_key(&w, "shadow_id");
    json_hex(&w, s->id.b, 32);
    json_put_hash(&w, "inputs_digest", &s->digest);
    json_put_cstr(&w, "state", names[state]);
    put_side(&w, "base", s->base->policy, &s->base_result, done);
    put_side(&w, "candidate", s->candidate->policy, &s->candidate_result, done);
    if (done) {
        put_diff(&w, s);
    } else if (state == REWARDER_SHADOW_FAILED) {
        json_key(&w, "failure");
        json_obj_begin(&w);
        json_put_cstr(&w, "code", err_code(s->failure));
        json_obj_end(&w);
    }
    json_obj_end(&w);
}

/* ---- after a restart ---- */

static bool read_meta(struct rewarder_shadow *s, struct bytes text)
{
    json_error_t why;
    json_t *o = json_loadb((const char *)text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    const char *tenant = json_string_value(json_object_get(o, "tenant"));
    bool ok = tenant && rewarder_is_tenant(str_from_c(tenant));
    if (ok) {
        snprintf(s->tenant, sizeof s->tenant, "%s", tenant);
        s->made_ms = json_integer_value(json_object_get(o, "made_at"));
    }
    json_decref(o);
    return ok;
}

static enum err visit(void *ctx, const char *name) RT_BLOCKS
{
    struct rewarder *r = ctx;
    struct rewarder_file file;
    struct sha256 id;
    char path[STORE_PATH_MAX];
    if (hex_decode(str_from_c(name), id.b, 32) != ERR_OK)
        return ERR_OK;
    rewarder_path_shadow(&r->files, &id, "meta.json", path);
    if (rewarder_file_load(&r->files, path, &file) != ERR_OK)
        return ERR_OK; /* it was not finished */
    struct rewarder_shadow *s = calloc(1, sizeof *s);
    if (!s) {
        rewarder_file_unload(&file);
        return ERR_NO_MEMORY;
    }
    atomic_init(&s->refs, 1);
    atomic_init(&s->state, REWARDER_SHADOW_DONE);
    s->id = id;
    buf_init(&s->top, 1);
    buf_init(&s->csv, 1);
    if (read_meta(s, file.bytes))
        rewarder_shadow_add(r, s);
    rewarder_file_unload(&file);
    rewarder_shadow_unref(s);
    return ERR_OK;
}

enum err rewarder_shadows_recover(struct rewarder *r)
{
    char dir[STORE_PATH_MAX];
    snprintf(dir, sizeof dir, "%s/shadow", r->files.root);
    return store_disk_list(r->files.disk, dir, visit, r);
}
