/*
 * Proof files and signed heads as strangers hand them in. The first byte chooses: a proof as it comes; a good proof with some bytes
 * changed; a note. The key has signed one head only, so whatever is accepted speaks of that head.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "ron/verify/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define VKEY STR("example.com/ron-ledger+023ba022+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4")
#define NOTE                                                                                               \
    "example.com/ron-ledger\n3\nW0eVLW1WDZOO2xB6eYDx87bJt9P2xDwg1CUt0hy3GF4=\n\n"                          \
    "— example.com/ron-ledger "                                                                          \
    "AjugIiW8zSjALpy5KlFVTOnVqeUVxGN2lbf5CeNMs8ggWp1fPEGe20GIY8dfUVCVRAM1rl1vbjOkatLROWqdiuppSQE=\n"

/* Of the first entry of the vectors in tests/unit/ledger/test_canon.c. */
static const char good[] =
    "c2sp.org/tlog-proof@v1\n"
    "extra "
    "eyJhY2NvdW50IjoiYWNjdDphbGljZSIsImFtb3VudCI6IjEwMDAiLCJhc3NldCI6InJvbiIsImlkIjoi"
    "ZGVtby0xIiwia2luZCI6Im1pbnQiLCJ0cyI6MTc2MDAwMDAwMDAwMCwidW5pdCI6InNoYTI1NjoyODVk"
    "ZjQwYzA1Mzg2N2E2OGFjMzA2ZjIyM2I0MDc5NjdmODhiNDBiNDFmNjEzNTAxZDg1YmJlMDJhZDE1NGQ3"
    "IiwidiI6MX0="
    "\n"
    "index 0\n"
    "FQmf/0ZmfSDQcJ+p9SOj8edEPOfrIOw47hh/liUvlDc=\n"
    "E2irhPo5ggqwMXxnBjuHCxjAG3yzm3L4i+6OgLO74F0=\n"
    "\n" NOTE;

static void proof(const char *text, size_t n)
{
    uint64_t index = 7, size = 7;
    if (ledger_verify_proof(str_of(text, n), VKEY, &index, &size) == ERR_OK)
        CHECK(size == 3 && index < 3);
    else
        CHECK(index == 7 && size == 7);
}

/* Two bytes where, one what: at most eight of them. */
static void changed(const uint8_t *p, size_t n)
{
    char text[sizeof good];
    memcpy(text, good, sizeof good);
    for (size_t i = 0; i + 3 <= n && i < 24; i += 3)
        text[be16_get(p + i) % (sizeof good - 1)] ^= (char)p[i + 2];
    proof(text, sizeof good - 1);
}

static void note(const char *text, size_t n)
{
    struct str origin;
    struct sha256 root;
    uint64_t size;
    struct str s = str_of(text, n);
    if (verify_note(s, VKEY, &size, &root) != ERR_OK)
        return;
    CHECK(size == 3 && verify_note_read(s, &origin, &size, &root) == ERR_OK && size == 3);
    CHECK(str_eq(origin, STR("example.com/ron-ledger")));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static bool looked;
    uint64_t index, size;
    if (!looked) { /* else nothing would be shown by what follows */
        CHECK(ledger_verify_proof(str_from_c(good), VKEY, &index, &size) == ERR_OK && index == 0 &&
              size == 3);
        looked = true;
    }
    if (n < 1)
        return 0;
    char *text = malloc(n); /* its own block: a byte read behind it is seen */
    CHECK(text != NULL);
    memcpy(text, p + 1, n - 1);
    if (p[0] % 3 == 0)
        proof(text, n - 1);
    else if (p[0] % 3 == 1)
        changed(p + 1, n - 1);
    else
        note(text, n - 1);
    free(text);
    return 0;
}
