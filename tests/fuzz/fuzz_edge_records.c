/* refs.log, .dix and tag pages from anywhere: what decodes encodes to the same bytes, and replaying never goes wrong. */
#include "base/check.h"
#include "services/edge/core/catalog.h"
#include "services/edge/core/tag_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct edge_catalog c;
    struct edge_record r;
    struct buf again;
    size_t at = 0, n;
    if (edge_catalog_init(&c) != ERR_OK)
        return 0;
    buf_init(&again, 1 << 20);
    while (edge_record_decode(bytes_of(data + at, size - at), &r, &n) == ERR_OK) {
        buf_reset(&again);
        edge_record_encode(&r, &again);
        CHECK(again.n == n && memcmp(again.p, data + at, n) == 0);
        CHECK(edge_catalog_apply(&c, &r) == ERR_OK);
        at += n;
    }
    (void)edge_record_any_after(bytes_of(data, size), at < size ? at : 0);
    edge_catalog_fini(&c);
    buf_fini(&again);
    if (size >= EDGE_TAG_PAGE) {
        struct edge_tag_header h;
        struct edge_tag t;
        if (edge_tag_header_decode(data, &h) == ERR_OK)
            CHECK((h.buckets & (h.buckets - 1)) == 0);
        if (edge_tag_find(data, 6, &t) >= 0)
            CHECK(t.key == 6);
        CHECK(edge_tag_place(data, 6) < EDGE_TAG_SLOTS);
    }
    return 0;
}
