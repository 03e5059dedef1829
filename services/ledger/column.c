#include "services/ledger/column.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { WRITE_STEP = 1 << 20 };

enum err ledger_column_init(struct ledger_column *c, uint32_t record, uint32_t chunk, uint32_t slots,
                            struct store_file *file, uint64_t flushed)
{
    CHECK(record % 8 == 0 && (chunk & (chunk - 1)) == 0 && (slots & (slots - 1)) == 0);
    memset(c, 0, sizeof *c);
    c->record = record;
    c->chunk = chunk;
    c->slots = slots;
    c->n = flushed;
    atomic_init(&c->flushed, flushed);
    c->file = file;
    c->ring = calloc(slots, sizeof *c->ring);
    c->spare = calloc(slots, sizeof *c->spare);
    if (c->ring == NULL || c->spare == NULL) {
        free(c->ring);
        free(c->spare);
        return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

void ledger_column_fini(struct ledger_column *c)
{
    for (uint32_t i = 0; c->ring != NULL && i < c->slots; i++)
        free(atomic_load_explicit(&c->ring[i], memory_order_relaxed));
    for (uint32_t i = c->spare_out; c->spare != NULL && i != c->spare_in; i++)
        free(atomic_load_explicit(&c->spare[i & (c->slots - 1)], memory_order_relaxed));
    free(c->ring);
    free(c->spare);
    store_file_close(c->file);
    memset(c, 0, sizeof *c);
}

static _Atomic(uint64_t *) *slot_of(const struct ledger_column *c, uint64_t index)
{
    return &c->ring[index / c->chunk & (c->slots - 1)];
}

bool ledger_column_has_room(const struct ledger_column *c, uint64_t more)
{
    uint64_t flushed = atomic_load_explicit(&c->flushed, memory_order_acquire);
    return (c->n + more) / c->chunk - flushed / c->chunk < c->slots;
}

static uint64_t *chunk_take(struct ledger_column *c)
{
    uint32_t out = atomic_load_explicit(&c->spare_out, memory_order_relaxed);
    if (out != atomic_load_explicit(&c->spare_in, memory_order_acquire)) { /* pairs with chunk_give */
        uint64_t *p = atomic_load_explicit(&c->spare[out & (c->slots - 1)], memory_order_relaxed);
        atomic_store_explicit(&c->spare_out, out + 1, memory_order_release);
        return p;
    }
    return malloc((size_t)c->chunk * c->record);
}

static void chunk_give(struct ledger_column *c, uint64_t *p)
{
    uint32_t in = atomic_load_explicit(&c->spare_in, memory_order_relaxed);
    CHECK(in - atomic_load_explicit(&c->spare_out, memory_order_acquire) <
          c->slots); /* as many as the ring has */
    atomic_store_explicit(&c->spare[in & (c->slots - 1)], p, memory_order_relaxed);
    atomic_store_explicit(&c->spare_in, in + 1, memory_order_release);
}

enum err ledger_column_append(struct ledger_column *c, const void *record)
{
    _Atomic(uint64_t *) *slot = slot_of(c, c->n);
    uint64_t *chunk = atomic_load_explicit(slot, memory_order_relaxed);
    if (c->n % c->chunk == 0 || chunk == NULL) {
        if (!ledger_column_has_room(c, 0))
            return ERR_BUSY;
        CHECK(chunk == NULL);
        chunk = chunk_take(c);
        if (chunk == NULL)
            return ERR_NO_MEMORY;
        atomic_store_explicit(slot, chunk, memory_order_release);
    }
    size_t words = c->record / 8;
    _Atomic uint64_t *to = (_Atomic uint64_t *)(chunk + (c->n % c->chunk) * words);
    uint64_t word;
    for (size_t i = 0; i < words;
         i++) { /* word by word: a reader of a recycled chunk may look, and will look again */
        memcpy(&word, (const char *)record + 8 * i, 8);
        atomic_store_explicit(&to[i], word, memory_order_relaxed);
    }
    c->n++;
    return ERR_OK;
}

/* True when the record was read from memory while it still belonged there. */
static bool copy_young(const struct ledger_column *c, uint64_t index, void *out)
{
    uint64_t *chunk = atomic_load_explicit(slot_of(c, index), memory_order_acquire);
    if (chunk == NULL)
        return false;
    size_t words = c->record / 8;
    _Atomic uint64_t *from = (_Atomic uint64_t *)(chunk + (index % c->chunk) * words);
    for (size_t i = 0; i < words; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);
        memcpy((char *)out + 8 * i, &word, 8);
    }
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&c->flushed, memory_order_relaxed) <=
           index; /* pairs with forget's release */
}

enum err ledger_column_get(const struct ledger_column *c, uint64_t index, void *out)
{
    if (atomic_load_explicit(&c->flushed, memory_order_acquire) <= index) {
        if (copy_young(c, index, out))
            return ERR_OK;
        if (atomic_load_explicit(&c->flushed, memory_order_acquire) <= index)
            return ERR_RANGE;
    }
    return store_file_read_all(c->file, out, c->record, index * c->record);
}

enum err ledger_column_get_many(const struct ledger_column *c, uint64_t index, uint64_t count, void *out)
{
    uint64_t flushed = atomic_load_explicit(&c->flushed, memory_order_acquire);
    char *p = out;
    if (index < flushed) {
        uint64_t old = flushed - index < count ? flushed - index : count;
        enum err err = store_file_read_all(c->file, p, old * c->record, index * c->record);
        if (err != ERR_OK)
            return err;
        p += old * c->record;
        index += old;
        count -= old;
    }
    for (; count > 0; count--, index++, p += c->record) {
        enum err err = ledger_column_get(c, index, p);
        if (err != ERR_OK)
            return err;
    }
    return ERR_OK;
}

enum err ledger_column_flush(struct ledger_column *c, uint64_t upto)
{
    uint64_t at = atomic_load_explicit(&c->flushed, memory_order_relaxed);
    if (c->file == NULL || at >= upto)
        return ERR_OK;
    uint64_t step = WRITE_STEP / c->record;
    char *piece = malloc(step * c->record);
    if (piece == NULL)
        return ERR_NO_MEMORY;
    enum err err = ERR_OK;
    while (err == ERR_OK && at < upto) {
        uint64_t n = upto - at < step ? upto - at : step;
        for (uint64_t i = 0; i < n; i++)
            CHECK(copy_young(c, at + i, piece + i * c->record)); /* only the flusher itself recycles */
        err = store_file_pwrite(c->file, piece, n * c->record, at * c->record);
        at += n;
    }
    free(piece);
    return err == ERR_OK ? store_file_sync(c->file) : err;
}

void ledger_column_forget(struct ledger_column *c, uint64_t upto)
{
    if (c->file == NULL)
        return;
    uint64_t from = atomic_load_explicit(&c->flushed, memory_order_relaxed);
    atomic_store_explicit(&c->flushed, upto, memory_order_release); /* before any chunk is reused */
    atomic_thread_fence(memory_order_seq_cst);
    for (uint64_t chunk = from / c->chunk; chunk < upto / c->chunk; chunk++) {
        uint64_t *p =
            atomic_exchange_explicit(&c->ring[chunk & (c->slots - 1)], NULL, memory_order_acq_rel);
        if (p != NULL)
            chunk_give(c, p);
    }
}
