/* Canonical attributes: whatever is well formed walks to its end, and what was walked encodes to the same bytes again. */
#include "base/check.h"
#include "services/mailbox/core/canon.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes b = bytes_of(data, n);
    struct mailbox_attr a[MAILBOX_ATTRS_MAX + 1];
    uint8_t out[MAILBOX_ATTRS_BYTES_MAX];
    size_t count = 0, at = 0, len;
    if (!mailbox_attrs_wellformed(b))
        return 0;
    while (count <= MAILBOX_ATTRS_MAX && mailbox_attrs_next(b, &at, &a[count]))
        count++;
    CHECK(count > MAILBOX_ATTRS_MAX || at == n);
    bool sorted = true;
    for (size_t i = 1; i < count; i++)
        sorted = sorted && str_cmp(a[i - 1].key, a[i].key) < 0;
    if (count > MAILBOX_ATTRS_MAX || mailbox_attrs_encode(a, count, out, sizeof out, &len) != ERR_OK)
        return 0; /* more, or other, than a sender may give */
    CHECK(!sorted || bytes_eq(b, bytes_of(out, len)));
    return 0;
}
