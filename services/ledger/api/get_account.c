/* GET /v1/accounts/{account} and GET /v1/supply: from memory, one snapshot, on the loop's thread. */
#include <stdio.h>
#include <stdlib.h>

#include "services/ledger/api/api.h"
#include "services/ledger/api/routes.h"

enum { SPINS = 1 << 20, SUPPLY_MAX = 65536 };

void ledger_get_account(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    ledger_http_mark_position(s, rq);
    struct ledger *l = s->l;
    struct str account = net_req_param(rq, "account");
    uint64_t min_seq;
    if (!ledger_account_ok(account)) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "not an account");
        return;
    }
    if (!ledger_http_number(rq, "min_seq", 0, 0, UINT64_MAX, &min_seq))
        return;
    struct auth_cap *cap;
    struct auth_want want = {
        .op = STR("read"), .account = account, .lacks = SVC_LACKS_ALL & ~AUTH_BIT(AUTH_CV_ACCOUNT)};
    if (svc_authorize(s->svc, rq, &want, &cap) != ERR_OK)
        return;
    auth_cap_release(cap);
    struct ledger_head head;
    struct ledger_account_read read = {0};
    enum err err = ERR_BUSY;
    for (unsigned i = 0; err == ERR_BUSY && i < SPINS;
         i++) { /* a group is being put in place: microseconds */
        ledger_head_read(l, &head);
        err = ledger_state_read_account(l->state, account, head.seq, &read);
    }
    if (err != ERR_OK) {
        net_reply_problem(rq, ERR_BUSY, "the account is changing");
    } else if (head.seq < min_seq) {
        char details[64];
        int n = snprintf(details, sizeof details, "{\"as_of_seq\":%llu}", (unsigned long long)head.seq);
        net_reply_problem_details(rq, ERR_BEHIND, "the head is below min_seq",
                                  bytes_of(details, (size_t)n));
    } else {
        struct buf b;
        struct json_w w;
        buf_init(&b, 64 << 20);
        json_w_init(&w, &b);
        json_obj_begin(&w);
        json_put_str(&w, "account", account);
        json_key(&w, "balances");
        json_arr_begin(&w);
        for (size_t i = 0; i < read.n_balances; i++) {
            json_obj_begin(&w);
            json_put_str(&w, "asset", read.balances[i].asset);
            json_put_money(&w, "available", read.balances[i].available);
            json_put_money(&w, "held", read.balances[i].held);
            json_obj_end(&w);
        }
        json_arr_end(&w);
        json_key(&w, "nonces");
        json_arr_begin(&w);
        for (size_t i = 0; i < read.n_lanes; i++) {
            json_obj_begin(&w);
            json_put_u64(&w, "lane", read.lanes[i].lane);
            json_key(&w, "last");
            json_u64_text(&w, (uint64_t)read.lanes[i].lane << CORE_LANE_SHIFT | read.lanes[i].counter);
            json_obj_end(&w);
        }
        json_arr_end(&w);
        json_put_u64(&w, "as_of_seq", head.seq);
        json_put_hash(&w, "root", &head.root);
        json_obj_end(&w);
        net_reply_json(rq, 200, buf_bytes(&b));
        buf_fini(&b);
    }
    ledger_account_read_fini(&read);
}

void ledger_get_supply(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct auth_cap *cap;
    if (!ledger_http_access(s, rq, ACCESS_READ, &cap))
        return;
    auth_cap_release(cap);
    struct ledger_supply_row *rows = malloc(SUPPLY_MAX * sizeof *rows);
    if (rows == NULL) {
        net_reply_problem(rq, ERR_BUSY, "no memory");
        return;
    }
    struct ledger_head head, again;
    size_t n;
    do { /* the sums are of one head when it did not move meanwhile */
        ledger_head_read(s->l, &head);
        n = ledger_state_supply(s->l->state, rows, SUPPLY_MAX);
        ledger_head_read(s->l, &again);
    } while (head.seq != again.seq && atomic_load(&s->l->commit_began_ns) == 0);
    struct buf b;
    struct json_w w;
    buf_init(&b, 64 << 20);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "assets");
    json_arr_begin(&w);
    for (size_t i = 0; i < n; i++) {
        json_obj_begin(&w);
        json_put_str(&w, "asset", rows[i].asset);
        json_put_money(&w, "minted", rows[i].minted);
        json_put_money(&w, "burned", rows[i].burned);
        json_put_money(&w, "circulating", (struct money){rows[i].minted.units - rows[i].burned.units});
        json_put_money(&w, "held", rows[i].held);
        json_obj_end(&w);
    }
    json_arr_end(&w);
    json_put_u64(&w, "as_of_seq", head.seq);
    json_put_hash(&w, "root", &head.root);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
    free(rows);
}
