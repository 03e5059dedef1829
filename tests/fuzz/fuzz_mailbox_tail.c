/* The tail cache against a plain array: bytes come back as they were put, or not at all. */
#include <stdlib.h>

#include "base/check.h"
#include "services/mailbox/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t truth[1 << 20];
    struct mailbox_tail t;
    uint64_t at = 0;
    if (n > 4096 || mailbox_tail_init(&t, 1000) != ERR_OK)
        return 0;
    for (size_t i = 0; i + 2 < n && at + 2048 < sizeof truth; i += 3) {
        size_t len = 1 + (size_t)(data[i] | data[i + 1] << 8) % 1200;
        for (size_t k = 0; k < len; k++)
            truth[at + k] = (uint8_t)(at + k + data[i + 2]);
        mailbox_tail_put(&t, 1, at, truth + at, len);
        at += len + data[i + 2] % 64; /* frames have padding between them */
        for (unsigned probe = 0; probe < 8; probe++) {
            uint8_t got[64];
            uint64_t where = at > 8 * probe * 37 ? at - 8 * probe * 37 : 0;
            if (where < at && mailbox_tail_get(&t, 1, where, got, 1))
                CHECK(got[0] == truth[where]);
        }
    }
    mailbox_tail_fini(&t);
    return 0;
}
