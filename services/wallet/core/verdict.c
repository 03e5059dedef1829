#include "services/wallet/core/verdict.h"

#include <stddef.h>

static struct wallet_verdict refuse(enum err err, const char *reason)
{
    return (struct wallet_verdict){WALLET_V_REFUSE, err, reason};
}

static struct wallet_verdict plain(enum wallet_verdict_kind kind)
{
    return (struct wallet_verdict){.kind = kind};
}

struct wallet_verdict wallet_verdict_of(enum err reason, bool hold_expired)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum" /* every other reason is a breach of contract */
    switch (reason) {
    case ERR_CONFLICT:
    case ERR_EXISTS:
        return plain(WALLET_V_LOOK_UP);
    case ERR_INSUFFICIENT_FUNDS:
        return refuse(ERR_INSUFFICIENT_FUNDS, NULL);
    case ERR_NONCE_CONFLICT:
    case ERR_NONCE_GAP:
        return refuse(ERR_NONCE_CONFLICT, NULL);
    case ERR_HOLD_CLOSED:
        return refuse(hold_expired ? ERR_HOLD_EXPIRED : ERR_HOLD_SETTLED, NULL);
    case ERR_REF_NOT_FOUND:
        return refuse(ERR_HOLD_UNKNOWN, NULL);
    case ERR_AMOUNT_EXCEEDS:
        return refuse(ERR_UNPROCESSABLE, "over_hold");
    case ERR_OVERFLOW:
        return refuse(ERR_UNPROCESSABLE, "overflow");
    case ERR_BAD_HOLD_UNTIL:
        return refuse(ERR_UNPROCESSABLE, "hold_until");
    case ERR_LIMIT_REACHED:
        return refuse(ERR_UNPROCESSABLE, "ledger_limit");
    case ERR_POLICY_DENIED:
        return refuse(ERR_FORBIDDEN, "policy");
    case ERR_BUSY:
    case ERR_TIMEOUT:
    case ERR_REQUEST_TIMEOUT:
    case ERR_UNAVAILABLE:
    case ERR_DRAINING:
    case ERR_SAFE_MODE:
    case ERR_NOT_WRITER:
    case ERR_RATE_LIMITED:
    case ERR_REFUSED:
    case ERR_NO_MEMORY:
    case ERR_CLOSED:
        return plain(WALLET_V_RETRY);
    case ERR_EXPIRED:
        return plain(WALLET_V_EXPIRED);
    case ERR_OUTCOME_UNKNOWN:
    case ERR_DISCONNECTED:
        return plain(WALLET_V_UNKNOWN);
    default:
        return plain(WALLET_V_FAULT);
    }
#pragma GCC diagnostic pop
}
