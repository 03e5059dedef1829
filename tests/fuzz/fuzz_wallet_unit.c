/*
 * Units as the ledger may answer them: meta, key header and entries from arbitrary bytes. Whatever is accepted as a
 * wallet's unit must name itself and give the same receipt again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/wallet/core/unit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct str piece(const uint8_t **p, size_t *n, size_t max)
{
    if (*n == 0)
        return str_of(NULL, 0);
    size_t want = **p % (max + 1);
    ++*p;
    --*n;
    if (want > *n)
        want = *n;
    struct str s = str_of((const char *)*p, want);
    *p += want;
    *n -= want;
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str key;
    struct wallet_meta m;
    struct wallet_rebuilt r;
    struct sha256 root = {{0}};
    struct wallet_entry e[2] = {0};
    const uint8_t *p = data;
    size_t left = n;

    if (wallet_key_parse(str_of((const char *)data, n), &key) == ERR_OK)
        CHECK(key.n >= 1 && key.n <= WALLET_KEY_MAX);
    if (wallet_meta_decode(bytes_of(data, n), &m) == ERR_OK) {
        uint8_t again[WALLET_META_MAX];
        CHECK(wallet_meta_encode(&m, again) == n && memcmp(again, data, n) == 0);
    }
    for (int i = 0; i < 2; i++) {
        e[i].kind = (enum wallet_entry_kind)(left ? *p % 8 : 0);
        e[i].id = piece(&p, &left, 40);
        e[i].account = piece(&p, &left, 128);
        e[i].to = piece(&p, &left, 128);
        e[i].asset = piece(&p, &left, 32);
        e[i].ref_id = piece(&p, &left, 40);
        e[i].amount = money_from_u64(left > 8 ? le64_get(p) : 1);
        e[i].nonce = left > 16 ? le64_get(p + 8) : 0;
        e[i].ts_ms = 1;
        e[i].hold_until_ms = left > 24 ? (int64_t)(le64_get(p + 16) >> 1) : 0;
    }
    struct str idem = piece(&p, &left, 66);
    if (wallet_unit_rebuild(idem, e, 1 + n % 2, bytes_of(p, left), 1, &root, 1, &r) == ERR_OK)
        CHECK(str_eq_c(e[0].id, r.receipt.txid));
    return 0;
}
