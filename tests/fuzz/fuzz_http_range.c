/* Range, If-Range, tag lists and dates: no header may break the invariants of what comes out. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/http_range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* input: 1 byte of length class, then values separated by newlines */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t lengths[] = {0, 1, 2, 10, 100, 1u << 20, UINT64_MAX / 2, UINT64_MAX};
    if (size < 1)
        return 0;
    uint64_t length = lengths[data[0] % 8];
    char *text = malloc(size);
    CHECK(text != NULL);
    memcpy(text, data + 1, size - 1);
    struct str parts[6] = {{0}}, rest = {text, size - 1};
    for (size_t i = 0; i < 6; i++) {
        const char *nl = rest.n ? memchr(rest.p, '\n', rest.n) : NULL;
        size_t n = nl ? (size_t)(nl - rest.p) : rest.n;
        parts[i] = (struct str){rest.p, n};
        rest = nl ? (struct str){nl + 1, rest.n - n - 1} : (struct str){rest.p + n, 0};
    }
    struct net_conditions c = {
        .range = parts[0],
        .if_range = parts[1].n ? parts[1] : (struct str){NULL, 0},
        .if_none_match = parts[2].n ? parts[2] : (struct str){NULL, 0},
        .if_modified_since = parts[3],
        .if_match = parts[4].n ? parts[4] : (struct str){NULL, 0},
        .if_unmodified_since = parts[5].n ? parts[5] : (struct str){NULL, 0},
        .is_get = true,
    };
    struct net_validator v = {.etag = {STR("\"a\""), false}, .modified_s = 784111777};
    bool match = false;
    enum net_condition verdict = net_conditions_check(&c, &v, 1794700000);
    if (c.if_match.p && net_etag_list_has(c.if_match, &v.etag, true, &match) != ERR_OK)
        CHECK(verdict == NET_CONDITION_BAD);
    else if (c.if_match.p && !match)
        CHECK(verdict == NET_CONDITION_FAILED);
    struct net_range r[16];
    size_t n = 0;
    if (net_range_read(&c, &v, 1794700000, length, NULL, r, &n) == NET_RANGE_PARTS) {
        CHECK(n >= 1 && n <= 16 && length > 0);
        uint64_t total = 0;
        for (size_t i = 0; i < n; i++) {
            CHECK(r[i].first <= r[i].last && r[i].last < length);
            CHECK(total <= length - (r[i].last - r[i].first + 1));
            total += r[i].last - r[i].first + 1;
            for (size_t k = 0; k < i; k++)
                CHECK(r[k].last + 1 < r[i].first || r[i].last + 1 < r[k].first);
        }
    }
    free(text);
    return 0;
}
