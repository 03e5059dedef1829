/* POST /admin/take-over: this copy becomes the writer now, whoever holds the lease. Answered when it has; one that takes itself for
 * the writer asks PostgreSQL first whether it still is. */
#include "base/json_write.h"
#include "rt/task.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/routes.h"
#include "services/ledger/replica.h"

enum { WAIT_MS = 20000 };

static void answer(struct ledger_service *s, struct net_req *rq)
{
    struct ledger *l = s->l;
    struct buf b;
    struct json_w w;
    struct ledger_head head;
    ledger_head_read(l, &head);
    buf_init(&b, 1024);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "role", ledger_role_name(ledger_replica_role(l)));
    json_put_u64(&w, "epoch", atomic_load(&l->replica->epoch));
    json_put_u64(&w, "head_seq", head.seq);
    json_put_hash(&w, "root", &head.root);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

static void run(struct ledger_service *s, struct ledger_read *r)
{
    struct net_req *rq = r->door;
    struct ledger *l = s->l;
    enum ledger_role now = ledger_replica_role(l);
    if (now == ROLE_STANDBY || now == ROLE_WRITER)
        atomic_store(&l->replica->want_take_over, true);
    for (struct deadline by = deadline_in_ms(WAIT_MS); !deadline_passed(by); ledger_nap()) {
        if (rt_task_current() != NULL && rt_task_stopping(rt_task_current()))
            break;
        enum ledger_role role = ledger_replica_role(l);
        if (role == ROLE_WRITER && !atomic_load(&l->replica->want_take_over)) {
            answer(s, rq);
            return;
        }
        if (ledger_safe_cause(l) != CAUSE_NONE) {
            net_reply_problem(rq, ERR_SAFE_MODE, "safe mode: %s", ledger_cause_name(ledger_safe_cause(l)));
            return;
        }
    }
    char why[REPLICA_WHY_MAX];
    ledger_replica_why(l, why);
    net_reply_problem(rq, ERR_TIMEOUT, "not taken over yet, still trying: %s", why);
}

void ledger_admin_take_over(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    if (!svc_allow_admin(s->svc, rq))
        return;
    if (s->l->replica == NULL) {
        net_reply_problem(rq, ERR_CONFLICT, "this ledger is alone (replica.dsn is empty)");
        return;
    }
    struct ledger_read *r = arena_alloc(net_req_arena(rq), sizeof *r);
    if (r != NULL)
        *r = (struct ledger_read){run, rq};
    if (r == NULL || rt_chan_try_send(s->l->admin, r) != ERR_OK)
        net_reply_problem(rq, ERR_BUSY, "admin queue is full");
}
