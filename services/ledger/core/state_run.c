#include "services/ledger/core/state_run.h"

#include "base/check.h"
#include "base/crc32c.h"

int ledger_state_item_cmp(const struct ledger_state_item *a, const struct ledger_state_item *b)
{
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    return bytes_cmp(a->key, b->key);
}

void ledger_state_run_begin(struct buf *out)
{
    static const uint8_t header[STATE_RUN_HEADER];
    buf_put(out, header, sizeof header);
}

void ledger_state_run_put(struct buf *out, const struct ledger_state_item *it)
{
    uint8_t head[3], len[2];
    head[0] = it->type;
    le16_put(head + 1, (uint16_t)it->key.n);
    le16_put(len, (uint16_t)it->value.n);
    buf_put(out, head, 3);
    buf_put_bytes(out, it->key);
    buf_put(out, len, 2);
    buf_put_bytes(out, it->value);
}

void ledger_state_run_end(struct buf *out, uint32_t tier, uint64_t n, uint64_t as_of_seq)
{
    if (out->err != ERR_OK)
        return;
    uint8_t *h = out->p, footer[8];
    memcpy(h, "RONLSTA1", 8);
    le32_put(h + 8, 1);
    le32_put(h + 12, tier);
    le64_put(h + 16, n);
    le64_put(h + 24, as_of_seq);
    le32_put(h + 60, crc32c(0, h, 60));
    le32_put(footer, crc32c(0, out->p + STATE_RUN_HEADER, out->n - STATE_RUN_HEADER));
    memcpy(footer + 4, "RSTA", 4);
    buf_put(out, footer, 8);
}

/* The record at `at`; its end goes to *out_next. False when it does not fit. */
static bool item_at(const uint8_t *p, size_t end, size_t at, struct ledger_state_item *out,
                    size_t *out_next)
{
    if (end - at < 5)
        return false;
    size_t key = le16_get(p + at + 1);
    if (key > STATE_KEY_MAX || end - at < 5 + key)
        return false;
    size_t value = le16_get(p + at + 3 + key);
    if (value > STATE_VALUE_MAX || end - at < 5 + key + value)
        return false;
    out->type = p[at];
    out->key = bytes_of(p + at + 3, key);
    out->value = bytes_of(p + at + 5 + key, value);
    *out_next = at + 5 + key + value;
    return true;
}

enum err ledger_state_run_open(const uint8_t *p, size_t bytes, struct ledger_state_run *out)
{
    if (bytes < STATE_RUN_HEADER + STATE_RUN_FOOTER || memcmp(p, "RONLSTA1", 8) != 0 ||
        le32_get(p + 60) != crc32c(0, p, 60))
        return ERR_CORRUPT;
    if (le32_get(p + 8) != 1)
        return ERR_VERSION;
    size_t end = bytes - STATE_RUN_FOOTER;
    if (memcmp(p + bytes - 4, "RSTA", 4) != 0 ||
        le32_get(p + end) != crc32c(0, p + STATE_RUN_HEADER, end - STATE_RUN_HEADER))
        return ERR_CORRUPT;
    struct ledger_state_run r = {p, bytes, le32_get(p + 12), le64_get(p + 16), le64_get(p + 24), 0};
    struct ledger_state_item last, it;
    size_t at = STATE_RUN_HEADER;
    for (uint64_t i = 0; i < r.n; i++) {
        if (!item_at(p, end, at, &it, &at) || (i > 0 && ledger_state_item_cmp(&last, &it) >= 0))
            return ERR_CORRUPT;
        last = it;
        r.n_rows += it.type == 'A';
    }
    if (at != end)
        return ERR_CORRUPT;
    *out = r;
    return ERR_OK;
}

void ledger_state_merge_init(struct ledger_state_merge *m, const struct ledger_state_run *runs, size_t n)
{
    CHECK(n <= STATE_RUNS_MAX);
    m->runs = runs;
    m->n = n;
    for (size_t i = 0; i < n; i++) {
        m->at[i] = STATE_RUN_HEADER;
        m->left[i] = runs[i].n;
    }
}

bool ledger_state_merge_next(struct ledger_state_merge *m, struct ledger_state_item *out)
{
    struct ledger_state_item least, it;
    size_t next[STATE_RUNS_MAX];
    bool have = false;
    bool same[STATE_RUNS_MAX];
    for (size_t i = 0; i < m->n; i++) {
        same[i] = false;
        if (m->left[i] == 0)
            continue;
        CHECK(item_at(m->runs[i].p, m->runs[i].bytes - STATE_RUN_FOOTER, m->at[i], &it, &next[i]));
        int c = have ? ledger_state_item_cmp(&it, &least) : -1;
        if (c < 0)
            for (size_t k = 0; k < i; k++)
                same[k] = false;
        if (c <= 0) { /* later runs are newer: the last equal one wins */
            least = it;
            have = true;
            same[i] = true;
        }
    }
    for (size_t i = 0; have && i < m->n; i++)
        if (same[i]) {
            m->at[i] = next[i];
            m->left[i]--;
        }
    if (have)
        *out = least;
    return have;
}
