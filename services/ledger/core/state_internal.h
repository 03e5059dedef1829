/*
 * What the files of the state share: the records, and the way to them. Nobody else includes this.
 *
 *   state.c         life, finding and making, expiry
 *   state_apply.c   judging a unit on ahead, undoing it
 *   state_commit.c  putting effects into committed, resetting ahead to it
 *   state_read.c    lock-free reads of committed
 *   state_record.c  state written down: records, digest, loading
 */
#ifndef RON_LEDGER_CORE_STATE_INTERNAL_H
#define RON_LEDGER_CORE_STATE_INTERNAL_H

#include <string.h>

#include "base/check.h"
#include "base/siphash.h"
#include "services/ledger/core/slab.h"
#include "services/ledger/core/state.h"

typedef unsigned __int128 u128;

#define BUSY_BIT (UINT64_C(1) << 63)

enum { NAME_INLINE = 32 };

struct account {
    _Atomic uint32_t next, row, lanes; /* directory chain, first row, further lanes */
    uint16_t lane;                     /* the first lane lives here */
    uint8_t has_lane, name_len;
    uint64_t counter;           /* ahead */
    _Atomic uint64_t c_counter; /* committed */
    union {
        char text[NAME_INLINE];
        char *heap; /* longer names */
    } name;
};

struct row {
    uint32_t account, asset;
    _Atomic uint32_t next;
    uint32_t unused;
    struct ledger_wide available, held; /* ahead */
    _Atomic uint64_t c_avail_lo, c_avail_hi, c_held_lo,
        c_held_hi;          /* committed, guarded by c_seq as a sequence lock */
    _Atomic uint64_t c_seq; /* 0 = nothing committed yet */
};

struct lane {
    _Atomic uint32_t next;
    uint32_t account;
    uint16_t lane;
    uint64_t counter;
    _Atomic uint64_t c_counter;
};

struct asset {
    _Atomic uint32_t next;
    uint8_t name_len;
    char name[CORE_ASSET_MAX];
    struct ledger_wide minted, burned;             /* ahead */
    struct ledger_wide c_minted, c_burned, c_held; /* committed, guarded by c_version */
    _Atomic uint64_t c_version;
    u128 delta; /* the committer's scratch */
};

struct hold {
    struct core_key key;
    _Atomic uint32_t next;
    uint32_t row;
    uint64_t seq, until, closed_seq;
    struct ledger_wide remaining;
    _Atomic uint64_t c_lo, c_hi, c_version; /* committed; version even and > 0 when there */
    uint8_t id_len;
    char id[CORE_ID_MAX];
};

struct reversal {
    _Atomic uint32_t next;
    uint64_t seq;
    struct ledger_wide reversed;
    _Atomic uint64_t c_lo, c_hi;
};

struct due {
    uint64_t until, seq;
    uint32_t hold;
};

enum undo_type {
    UNDO_ROW,
    UNDO_LANE,
    UNDO_SUPPLY,
    UNDO_HOLD,
    UNDO_REVERSAL,
    NEW_ACCOUNT,
    NEW_ROW,
    NEW_LANE,
    NEW_FIRST_LANE,
    NEW_ASSET,
    NEW_HOLD,
    NEW_REVERSAL
};

struct undo {
    enum undo_type type;
    uint32_t index, owner;
    struct ledger_wide a, b;
};
enum { UNDO_MAX = 8 * CORE_UNIT_ENTRIES_MAX };

/* Accounts that loading made and has not filed yet: long enough for their buckets to come from memory. */
enum { LOAD_UNFILED = 32 };

struct ledger_state {
    struct siphash_key hash_key;
    struct ledger_slab accounts, rows, lanes, assets, holds, reversals;
    struct ledger_dir account_dir, asset_dir, hold_dir, reversal_dir;
    uint32_t *free_holds; /* stack */
    uint32_t n_free_holds, cap_free_holds;
    struct due *
        heap; /* lazily cleaned: entries of closed holds are dropped when met, or when they outnumber the open ones */
    uint32_t n_heap, cap_heap;
    uint32_t *closed; /* ring of holds closed and not yet recycled, oldest first */
    uint32_t closed_head, n_closed, cap_closed;
    _Atomic uint64_t open_holds; /* one writer; gauges read it from elsewhere */
    uint32_t n_undo;
    uint32_t n_opened, n_shut; /* holds opened and shut by the unit being judged */
    struct undo *undo;
    uint32_t *opened, *shut;
    uint32_t *touched_assets; /* committer */
    uint32_t lane_hint;       /* sequencer: the further lane that was used last, if it is still there */
    uint32_t load_last;       /* loading: the account of the last record */
    uint32_t load_ascending;  /* loading: accounts 1 to this were made in ascending order */
    uint32_t load_filed;      /* loading: accounts 1 to this are in the directory */
    uint64_t load_hashes[LOAD_UNFILED]; /* loading: of those that are not, by index */
};

static inline struct ledger_wide wide(u128 v)
{
    return (struct ledger_wide){(uint64_t)v, (uint64_t)(v >> 64)};
}

static inline u128 narrow(struct ledger_wide w)
{
    return (u128)w.hi << 64 | w.lo;
}

static inline bool wide_eq(struct ledger_wide a, struct ledger_wide b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static inline struct account *account_at(const struct ledger_state *s, uint32_t i)
{
    return ledger_slab_at(&s->accounts, i);
}

static inline struct row *row_at(const struct ledger_state *s, uint32_t i)
{
    return ledger_slab_at(&s->rows, i);
}

static inline struct lane *lane_at(const struct ledger_state *s, uint32_t i)
{
    return ledger_slab_at(&s->lanes, i);
}

static inline struct asset *asset_at(const struct ledger_state *s, uint32_t i)
{
    return ledger_slab_at(&s->assets, i);
}

static inline struct hold *hold_at(const struct ledger_state *s, uint32_t i)
{
    return ledger_slab_at(&s->holds, i);
}

static inline struct reversal *reversal_at(const struct ledger_state *s, uint32_t i)
{
    return ledger_slab_at(&s->reversals, i);
}

static inline struct str account_name(const struct account *a)
{
    return (struct str){a->name_len <= NAME_INLINE ? a->name.text : a->name.heap, a->name_len};
}

static inline struct str asset_name(const struct asset *a)
{
    return (struct str){a->name, a->name_len};
}

static inline bool same(struct str a, struct str b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

static inline uint64_t name_hash(const struct ledger_state *s, struct str name)
{
    return siphash13(&s->hash_key, name.p, name.n);
}

uint32_t ledger_state__account_find(const struct ledger_state *s, uint64_t hash, struct str name);
uint32_t ledger_state__account_new(struct ledger_state *s, struct str name); /* not in the directory yet */
uint32_t ledger_state__account_make(struct ledger_state *s, uint64_t hash,
                                    struct str name);                        /* 0: no memory */
void ledger_state__account_unmake(struct ledger_state *s, uint32_t account); /* the last one made */
uint32_t ledger_state__asset_find(const struct ledger_state *s, struct str name);
uint32_t ledger_state__asset_make(struct ledger_state *s, struct str name);
void ledger_state__asset_unmake(struct ledger_state *s, uint32_t asset);
uint32_t ledger_state__row_find(const struct ledger_state *s, uint32_t account, uint32_t asset);
uint32_t ledger_state__row_make(struct ledger_state *s, uint32_t account, uint32_t asset);
uint32_t ledger_state__lane_make(struct ledger_state *s, uint32_t account, uint16_t lane);
uint32_t ledger_state__hold_find(const struct ledger_state *s, struct core_key key);
uint32_t ledger_state__hold_make(struct ledger_state *s, struct core_key key, struct str id, uint64_t seq,
                                 uint32_t row, uint64_t until);
void ledger_state__hold_forget(struct ledger_state *s, uint32_t hold);
uint32_t ledger_state__reversal_find(const struct ledger_state *s, uint64_t seq);
uint32_t ledger_state__reversal_make(struct ledger_state *s, uint64_t seq);
void ledger_state__reversal_unmake(struct ledger_state *s, uint32_t reversal);
void ledger_state__heap_push(struct ledger_state *s, struct due d);
void ledger_state__closed_push(struct ledger_state *s, uint32_t hold);

#endif
