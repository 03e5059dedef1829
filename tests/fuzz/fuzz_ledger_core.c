/* Bytes from a disk or a stranger: unit records, leaves, runs, packed segments, tile paths, notes. Nothing may crash, and what is
 * accepted must be written back the same. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/core/index_run.h"
#include "services/ledger/core/note.h"
#include "services/ledger/core/record.h"
#include "services/ledger/core/state_run.h"
#include "services/ledger/core/tile_path.h"
#include "services/ledger/segz.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void leaf(struct bytes in)
{
    char scratch[CORE_LEAF_MAX], back[CORE_LEAF_MAX];
    struct core_entry e;
    struct sha256 unit;
    struct core_fault fault;
    struct core_unit u = {STR("x"), {NULL, 0}, 0, &e, 1};
    if (ledger_canon_leaf_parse(str_of_bytes(in), scratch, &e, &unit) != ERR_OK ||
        ledger_unit_check(&u, true, &fault) != ERR_OK)
        return;
    size_t n = ledger_canon_leaf(&e, &unit, back);
    CHECK(n == in.n && memcmp(back, in.p, n) == 0);
}

static void record(struct bytes in)
{
    struct core_record r;
    if (ledger_record_parse(in, &r) != ERR_OK || r.n > 16)
        return;
    struct core_entry e[16];
    struct core_prepared_entry pe[16];
    struct core_prepared prepared = {.entries = pe};
    struct core_unit u;
    struct core_caller who;
    char *scratch = malloc((size_t)16 * CORE_LEAF_MAX);
    CHECK(scratch != NULL);
    if (ledger_record_decode(in, e, scratch, &u, &who, &prepared) == ERR_OK)
        CHECK(prepared.len <= in.n);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 1)
        return 0;
    struct bytes in = bytes_of(p + 1, n - 1);
    struct ledger_index_run run;
    struct ledger_state_run state;
    struct ledger_segz z;
    struct ledger_tile t;
    struct ledger_note note;
    uint8_t *chunk = NULL;
    switch (p[0] % 7) {
    case 0:
        leaf(in);
        break;
    case 1:
        record(in);
        break;
    case 2:
        if (ledger_index_run_open(in.p, in.n, true, &run) == ERR_OK) {
            struct ledger_index_item it;
            ledger_index_run_find(&run, (struct core_key){{1, 2}}, &it);
        }
        break;
    case 3:
        if (ledger_state_run_open(in.p, in.n, &state) == ERR_OK) {
            struct ledger_state_merge m;
            struct ledger_state_item it;
            ledger_state_merge_init(&m, &state, 1);
            while (ledger_state_merge_next(&m, &it))
                ;
        }
        break;
    case 4:
        chunk = malloc(SEGZ_CHUNK);
        if (chunk != NULL && ledger_segz_parse(in, &z) == ERR_OK && z.n_chunks > 0 &&
            ledger_segz_chunk(&z, in, 0, chunk) != ERR_OK)
            break;
        break;
    case 5:
        if (ledger_tile_parse(str_of_bytes(in), &t) == ERR_OK)
            CHECK(t.width >= 1 && t.width <= TILE_WIDTH);
        break;
    default:
        if (ledger_note_open(
                str_of_bytes(in),
                STR("example.com/ron-ledger+023ba022+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"),
                &note) == ERR_OK)
            CHECK(note.origin.n > 0);
        break;
    }
    free(chunk);
    return 0;
}
