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

void ledger_state_run_header(uint32_t tier, uint64_t n, uint64_t as_of_seq, uint8_t out[STATE_RUN_HEADER])
{
    memset(out, 0, STATE_RUN_HEADER);
    memcpy(out, "RONLSTA1", 8);
    le32_put(out + 8, 1);
    le32_put(out + 12, tier);
    le64_put(out + 16, n);
    le64_put(out + 24, as_of_seq);
    le32_put(out + 60, crc32c(0, out, 60));
}

void ledger_state_run_footer(uint32_t records_crc, uint8_t out[STATE_RUN_FOOTER])
{
    le32_put(out, records_crc);
    memcpy(out + 4, "RSTA", 4);
}

void ledger_state_run_end(struct buf *out, uint32_t tier, uint64_t n, uint64_t as_of_seq)
{
    if (out->err != ERR_OK)
        return;
    uint8_t footer[STATE_RUN_FOOTER];
    ledger_state_run_header(tier, n, as_of_seq, out->p);
    ledger_state_run_footer(crc32c(0, out->p + STATE_RUN_HEADER, out->n - STATE_RUN_HEADER), footer);
    buf_put(out, footer, sizeof footer);
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

/* Of equal keys the newer run comes first. */
static bool merge_before(const struct ledger_state_merge *m, uint8_t a, uint8_t b)
{
    int c = ledger_state_item_cmp(&m->head[a], &m->head[b]);
    return c != 0 ? c < 0 : a > b;
}

static void merge_sink(struct ledger_state_merge *m, size_t i)
{
    uint8_t run = m->heap[i];
    for (size_t child; (child = 2 * i + 1) < m->n; i = child) {
        if (child + 1 < m->n && merge_before(m, m->heap[child + 1], m->heap[child]))
            child++;
        if (merge_before(m, run, m->heap[child]))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = run;
}

/* Reads the record at next[run]. The run was opened, so it is there. */
static void merge_read(struct ledger_state_merge *m, uint8_t run)
{
    const struct ledger_state_run *r = &m->runs[run];
    CHECK(item_at(r->p, r->bytes - STATE_RUN_FOOTER, m->next[run], &m->head[run], &m->next[run]));
}

/* The first of the heap goes on to its next record, or out. */
static void merge_advance(struct ledger_state_merge *m)
{
    uint8_t run = m->heap[0];
    if (--m->left[run] > 0)
        merge_read(m, run);
    else
        m->heap[0] = m->heap[--m->n];
    if (m->n > 0)
        merge_sink(m, 0);
}

void ledger_state_merge_init(struct ledger_state_merge *m, const struct ledger_state_run *runs, size_t n)
{
    CHECK(n <= STATE_RUNS_MAX);
    m->runs = runs;
    m->n = 0;
    for (size_t i = 0; i < n; i++) {
        m->next[i] = STATE_RUN_HEADER;
        m->left[i] = runs[i].n;
        if (runs[i].n == 0)
            continue;
        merge_read(m, (uint8_t)i);
        m->heap[m->n++] = (uint8_t)i;
    }
    for (size_t i = m->n / 2; i-- > 0;)
        merge_sink(m, i);
}

bool ledger_state_merge_next(struct ledger_state_merge *m, struct ledger_state_item *out)
{
    if (m->n == 0)
        return false;
    uint8_t run = m->heap[0];
    *out = m->head[run];
    merge_advance(m);
    /* A run has each key once; older runs may have this one too. */
    while (m->n > 0 && m->heap[0] != run && ledger_state_item_cmp(&m->head[m->heap[0]], out) == 0)
        merge_advance(m);
    return true;
}
