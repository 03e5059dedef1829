#include "ledger_client/ledger_client.h"

static const char *const kind_names[LEDGER_KIND_COUNT] = {
    "none", "mint", "burn", "transfer", "hold", "capture", "release", "reverse", "expire"};

const char *ledger_kind_name(enum ledger_kind k)
{
    return (unsigned)k < LEDGER_KIND_COUNT ? kind_names[k] : "none";
}

enum err ledger_reason_from(struct str code)
{
    for (int e = 1; e < ERR_COUNT; e++)
        if (str_eq_c(code, err_code((enum err)e)))
            return (enum err)e;
    return ERR_INTERNAL;
}
