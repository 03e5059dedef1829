#include "ron/ledger_export.h"

#include <stdlib.h>

#include "base/json_write.h"
#include "ron/verify/check.h"

/* ---- first reading: the proofs ---- */

/* Before what is exported, and behind it. One that says nothing (from the empty tree, or a tree to itself) is left out. */
struct proofs {
    struct verify_consistency before, behind;
};

static void prove_entry(void *ctx, uint64_t seq, struct str leaf, const struct sha256 *hash,
                        struct str idem_id, struct str kid, uint64_t ledger_ms)
{
    struct proofs *p = ctx;
    (void)seq, (void)leaf, (void)idem_id, (void)kid, (void)ledger_ms;
    verify_consistency_add(&p->before, hash);
    verify_consistency_add(&p->behind, hash);
}

static void put_proof(struct json_w *w, const struct verify_consistency *p)
{
    if (p->from == 0 || p->from == p->to)
        return;
    json_obj_begin(w);
    json_put_u64(w, "from", p->from);
    json_put_hash(w, "from_root", &p->from_root);
    json_key(w, "proof");
    json_arr_begin(w);
    for (size_t i = 0; i < p->n; i++) {
        struct sha256 root;
        verify_tree_root(&p->v[i].tree, &root);
        json_hash(w, &root);
    }
    json_arr_end(w);
    json_put_u64(w, "to", p->to);
    json_put_hash(w, "to_root", &p->to_root);
    json_obj_end(w);
}

static void put_first_line(FILE *out, const struct ledger_export *x, const struct proofs *p)
{
    struct buf b;
    struct json_w w;
    buf_init(&b, 1 << 20);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_str(&w, "checkpoint", x->note);
    json_key(&w, "consistency");
    json_arr_begin(&w);
    put_proof(&w, &p->before);
    put_proof(&w, &p->behind);
    json_arr_end(&w);
    json_put_str(&w, "format", x->bundles ? STR("bundles") : STR("jsonl"));
    json_put_u64(&w, "from", x->from);
    json_put_u64(&w, "to", x->to);
    json_put_u64(&w, "v", 1);
    json_obj_end(&w);
    buf_putc(&b, '\n');
    fwrite(b.p, 1, b.n, out);
    buf_fini(&b);
}

/* ---- second reading: the entries ---- */

struct entries {
    const struct ledger_export *x;
    FILE *out;
    struct buf line;
};

static void put_bundled(FILE *out, struct str leaf)
{
    uint8_t n[2];
    be16_put(n, (uint16_t)leaf.n);
    fwrite(n, 1, sizeof n, out);
    fwrite(leaf.p, 1, leaf.n, out);
}

static void put_entry(void *ctx, uint64_t seq, struct str leaf, const struct sha256 *hash,
                      struct str idem_id, struct str kid, uint64_t ledger_ms)
{
    struct entries *e = ctx;
    struct json_w w;
    if (seq < e->x->from || seq > e->x->to)
        return;
    if (e->x->bundles) {
        put_bundled(e->out, leaf);
        return;
    }
    buf_reset(&e->line);
    json_w_init(&w, &e->line);
    json_obj_begin(&w);
    json_put_u64(&w, "seq", seq);
    json_put_str(&w, "leaf", leaf);
    json_put_hash(&w, "leaf_hash", hash);
    json_put_str(&w, "idem_id", idem_id);
    if (kid.n != 0) /* an expiry has nobody's */
        json_put_str(&w, "kid", kid);
    json_put_u64(&w, "ledger_ms", ledger_ms);
    json_obj_end(&w);
    buf_putc(&e->line, '\n');
    fwrite(e->line.p, 1, e->line.n, e->out);
}

int ledger_export(const struct ledger_export *x, FILE *out, struct ledger_verify_report *r)
{
    struct proofs *p = calloc(1, sizeof *p);
    if (p == NULL)
        return 2;
    verify_consistency_begin(&p->before, x->from - 1, x->size);
    verify_consistency_begin(&p->behind, x->to, x->size);
    int code = ledger_verify(x->dir, x->note, x->vkey, prove_entry, p, r);
    if (code == 0) {
        struct entries e = {.x = x, .out = out};
        put_first_line(out, x, p);
        buf_init(&e.line, 65536);
        code = ledger_verify(x->dir, x->note, x->vkey, put_entry, &e, r);
        buf_fini(&e.line);
    }
    free(p);
    return code;
}
