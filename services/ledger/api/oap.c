#include "services/ledger/service.h"

void ledger_oap(struct net_oap_req *rq, void *state)
{
    (void)state;
    net_oap_reply_problem(rq, ERR_NOT_FOUND, "no such operation");
}
