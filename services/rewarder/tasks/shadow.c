/* Shadow runs: the same inputs under two policies, and who would gain or lose. Nothing is claimed or emitted; the
 * result is kept for a day. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_write.h"
#include "base/money.h"
#include "services/rewarder/tasks/worker.h"

enum { TOP_MAX = 100 };

struct row {
    struct str account;
    wide_u128 base, candidate, delta; /* |delta| */
};

static int by_delta(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->delta != y->delta)
        return x->delta > y->delta ? -1 : 1;
    return str_cmp(x->account, y->account);
}

static void put_delta(struct buf *b, const struct row *row)
{
    char text[MONEY_CHARS];
    money_format((struct money){row->delta}, text);
    buf_printf(b, "%s%s", row->candidate < row->base ? "-" : "", text);
}

static void add_row(struct rewarder_shadow *s, const struct row *row)
{
    char base[MONEY_CHARS], candidate[MONEY_CHARS];
    money_format((struct money){row->base}, base);
    money_format((struct money){row->candidate}, candidate);
    buf_printf(&s->csv, "%.*s,%s,%s,", STR_ARG(row->account), base, candidate);
    put_delta(&s->csv, row);
    buf_putc(&s->csv, '\n');
    s->gained += row->candidate > row->base;
    s->lost += row->candidate < row->base;
    s->same += row->candidate == row->base;
    s->entered += row->base == 0 && row->candidate > 0;
    s->left += row->base > 0 && row->candidate == 0;
}

static void write_top(struct rewarder_shadow *s, struct row *rows, size_t n)
{
    struct json_w w;
    char text[MONEY_CHARS + 1];
    qsort(rows, n, sizeof *rows, by_delta);
    json_w_init(&w, &s->top);
    json_arr_begin(&w);
    for (size_t i = 0; i < n && i < TOP_MAX && rows[i].delta; i++) {
        struct buf b;
        buf_init_fixed(&b, text, sizeof text);
        put_delta(&b, &rows[i]);
        json_obj_begin(&w);
        json_put_str(&w, "account", rows[i].account);
        json_put_money(&w, "base", (struct money){rows[i].base});
        json_put_money(&w, "candidate", (struct money){rows[i].candidate});
        json_put_str(&w, "delta", buf_str(&b));
        json_obj_end(&w);
    }
    json_arr_end(&w);
}

/* Both tables hold the same input rows in the same order; only dust rows may differ. */
static enum err compare(struct rewarder_shadow *s, const struct rewarder_payouts *base,
                        const struct rewarder_payouts *cand)
{
    struct row *rows = malloc((base->rows ? base->rows : 1) * sizeof *rows);
    size_t n = 0;
    wide_u128 moved = 0;
    if (!rows)
        return ERR_NO_MEMORY;
    buf_puts(&s->csv, "account,base,candidate,delta\n");
    for (uint64_t i = 0, k = 0; i < base->rows; i++) {
        struct rewarder_payout b = rewarder_payouts_row(base, i);
        if (b.flags & REWARDER_DUST)
            continue;
        while (k < cand->rows && (rewarder_payouts_row(cand, k).flags & REWARDER_DUST))
            k++;
        struct rewarder_payout c = rewarder_payouts_row(cand, k++);
        rows[n] = (struct row){b.account, b.amount, c.amount,
                               c.amount > b.amount ? c.amount - b.amount : b.amount - c.amount};
        moved += rows[n].delta;
        add_row(s, &rows[n++]);
    }
    wide_u128 bd = s->base_result.dust, cd = s->candidate_result.dust;
    moved += bd > cd ? bd - cd : cd - bd;
    s->moved = moved / 2 + moved % 2;
    write_top(s, rows, n);
    free(rows);
    return s->csv.err != ERR_OK ? s->csv.err : s->top.err;
}

struct side {
    struct rewarder_calc *calc;
    struct rewarder_payouts table;
    bool open;
};

static enum err run_side(struct rewarder *r, struct rt_task *self, const struct rewarder_rows *rows,
                         const struct rewarder_policy *p, struct side *out,
                         struct rewarder_result *result) RT_BLOCKS
{
    unsigned index;
    wide_u128 pool = p->pool;
    struct rewarder_funds funds;
    if (p->pool_is_balance) {
        struct rewarder_settler *reader = rewarder_worker_reader(r, self);
        enum err e = reader && r->ledger ? rewarder_settler_funds(reader, str_from_c(p->funding),
                                                                  str_from_c(p->asset), self, &funds)
                                         : ERR_LEDGER_UNAVAILABLE;
        if (e != ERR_OK)
            return ERR_LEDGER_UNAVAILABLE;
        pool = funds.available.units;
    }
    enum err e =
        rewarder_calc_create(rows, p, pool, rewarder_config(r)->partition_rows, &out->calc, &index);
    if (e == ERR_OK)
        e = rewarder_calc_run(out->calc);
    if (e == ERR_OK)
        e = rewarder_payouts_open(rewarder_calc_file(out->calc), &out->table);
    out->open = e == ERR_OK;
    if (e == ERR_OK)
        *result = *rewarder_calc_result(out->calc);
    return e;
}

static void end_side(struct side *s)
{
    if (s->open)
        rewarder_payouts_close(&s->table);
    rewarder_calc_destroy(s->calc);
}

static enum err compute(struct rewarder *r, struct rt_task *self, const struct sha256 *cid,
                        struct rewarder_shadow *s) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct rewarder_file file = {.mapping = NULL};
    struct rewarder_rows rows;
    struct side base = {.open = false}, candidate = {.open = false};
    rewarder_path_input(&r->files, cid, ".rows", path);
    enum err e = rewarder_file_load(&r->files, path, &file);
    if (e == ERR_OK)
        e = rewarder_rows_open(file.bytes, &rows);
    if (e == ERR_OK)
        e = run_side(r, self, &rows, s->base->policy, &base, &s->base_result);
    if (e == ERR_OK)
        e = run_side(r, self, &rows, s->candidate->policy, &candidate, &s->candidate_result);
    if (e == ERR_OK)
        e = compare(s, &base.table, &candidate.table);
    end_side(&base);
    end_side(&candidate);
    rewarder_file_unload(&file);
    return e;
}

/* The artifact writer makes it durable, and only then it is done. */
void rewarder_worker_shadow(struct rewarder *r, struct rt_task *self, struct rewarder_item *it)
{
    struct rewarder_shadow *s = rewarder_shadow_find(r, &it->expected);
    if (!s)
        return;
    atomic_store_explicit(&s->state, REWARDER_SHADOW_COMPUTING, memory_order_release);
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_SHADOW, NULL);
    enum err e = o ? compute(r, self, &it->cid, s) : ERR_NO_MEMORY;
    if (e == ERR_OK) {
        o->shadow = s;
        e = rt_chan_send(r->results, o, rewarder_send_deadline(r));
        if (e == ERR_OK)
            return;
        o->shadow = NULL;
    }
    if (o)
        rewarder_outcome_destroy(r, o);
    s->failure = e;
    atomic_store_explicit(&s->state, REWARDER_SHADOW_FAILED, memory_order_release);
    rewarder_shadow_unref(s);
}
