/*
 * What the log means: balances per account and asset, nonces per lane, open holds, reversed amounts, supply.
 *
 * Two halves with one writer each. `ahead` belongs to the sequencer: ledger_state_apply() judges a unit against it and either
 * changes it and lists the effects, or leaves it as it was. `committed` belongs to the committer: ledger_state_commit() puts
 * the listed values in place once they are durable, and checks that each effect starts from what is there.
 *
 * Readers see committed only, without a lock: every row carries the seq of the unit that last changed it, with the top bit
 * set while it is being written. A reader that first reads the head H and then finds all rows of an account at seq <= H has
 * the account as of H. Rows are written before lanes, so a lane that is too new is betrayed by its row.
 *
 * Conservation is structural (each kind takes exactly what it gives) and checked per unit all the same.
 *
 * Ownership   The state copies what it keeps. Rejections point into the unit they are about.
 * Memory      64 bytes per account with a name up to 32 bytes, 88 per row, 4 per account for the directory.
 */
#ifndef RON_LEDGER_CORE_STATE_H
#define RON_LEDGER_CORE_STATE_H

#include "services/ledger/core/record.h"

/* Atomic: a reload writes them while units are judged. */
struct ledger_limits {
    _Atomic uint64_t max_accounts; /* rows: pairs of account and asset */
    _Atomic uint64_t max_open_holds, max_reversals;
    uint64_t max_assets;
    _Atomic uint32_t max_lanes; /* per account */
    _Atomic uint64_t max_hold_ms;
    /* Replaying what was judged before: limits and the time of judging are history, only what the log itself says counts. */
    bool replay;
};

struct ledger_wide {
    uint64_t lo, hi;
};

enum ledger_effect_type { FX_ROW, FX_LANE, FX_SUPPLY, FX_HOLD, FX_REVERSAL };

/* One value, before and after. a/b: available/held, counter/-, minted/burned, remaining/-, reversed/-. */
struct ledger_effect {
    uint16_t type;
    uint16_t asset; /* of rows */
    uint32_t index;
    struct ledger_wide old_a, old_b, new_a, new_b;
};
enum { EFFECTS_PER_ENTRY = 3 };

/* What the journal says about a ref_id, read by whoever may read it (state never does I/O). */
struct ledger_fact {
    bool known;   /* durable */
    bool expired; /* a hold that was closed by an expire entry */
    enum core_kind kind;
    uint64_t seq;
    struct str account, to, asset;
    struct money amount;
};

/* Why a unit was refused. Which of the fields mean something depends on the reason. */
struct ledger_reject {
    enum err reason;
    uint32_t entry;
    bool has_entry;
    struct str account, asset;
    struct money value; /* available / remaining */
    uint64_t last, got; /* nonces */
    uint64_t number;    /* seq_start / ledger_ms */
    const char *why;    /* "spent", "expired", limit or queue name */
};

struct ledger_state;

struct ledger_state *ledger_state_create(uint64_t seed0, uint64_t seed1);
void ledger_state_destroy(struct ledger_state *s);

/*
 * Judges one unit whose first entry would get `seq`, at ledger time `now_ms`. ERR_OK: applied to ahead, effects listed
 * (EFFECTS_PER_ENTRY · n at most). Else the reason, nothing changed. `facts` has one pointer per entry; NULL when none has.
 */
NODISCARD enum err ledger_state_apply(struct ledger_state *s, const struct core_unit *u,
                                      const struct core_prepared *p, const struct ledger_fact *const *facts,
                                      uint64_t seq, uint64_t now_ms, const struct ledger_limits *limits,
                                      struct ledger_effect *out_fx, uint32_t *out_n,
                                      struct ledger_reject *out_reject);
/* Fills in the hashes under which the state finds the unit's accounts. Any thread; without it, apply does it itself. */
void ledger_state_hash_names(const struct ledger_state *s, const struct core_unit *u,
                             struct core_prepared *p);
/* Sequencer: asks for the accounts of a unit that is judged soon, and then for their rows. Only hints. */
void ledger_state_prefetch_accounts(const struct ledger_state *s, const struct core_unit *u,
                                    const struct core_prepared *p);
void ledger_state_prefetch_rows(const struct ledger_state *s, const struct core_unit *u,
                                const struct core_prepared *p);

/* Committer: do the effects conserve every asset? (Before the flush; ERR_CORRUPT is a broken invariant.) */
NODISCARD enum err ledger_state_conserves(struct ledger_state *s, const struct ledger_effect *fx,
                                          uint32_t n);
/* Committer, after the flush: ERR_CORRUPT when an effect does not start from the committed value. */
NODISCARD enum err ledger_state_commit(struct ledger_state *s, const struct ledger_effect *fx, uint32_t n,
                                       uint64_t seq_end);

/* Sequencer: closed holds up to this durable seq may be forgotten. */
void ledger_state_recycle(struct ledger_state *s, uint64_t durable_seq);
/* Sequencer, with nothing in flight: ahead := committed. */
void ledger_state_reset_ahead(struct ledger_state *s);

/* The open hold that expires next, if it is due at now_ms. */
struct ledger_due {
    uint64_t seq;
    struct str id, account, asset;
    struct money remaining;
};
bool ledger_state_due(struct ledger_state *s, uint64_t now_ms, struct ledger_due *out_due);
/* When the next hold expires; UINT64_MAX when none does. */
uint64_t ledger_state_next_expiry(struct ledger_state *s);

/* Committed half, any thread. */
struct ledger_balance_row {
    struct str asset;
    struct money available, held;
    uint64_t seq;
};
struct ledger_lane_row {
    uint16_t lane;
    uint64_t counter;
};
struct ledger_account_read {
    struct ledger_balance_row *balances;
    struct ledger_lane_row *lanes;
    size_t n_balances, n_lanes, cap_balances, cap_lanes;
};
/* ERR_BUSY: it moved past `head` while being read, read the head again. An unknown account is an empty one. */
NODISCARD enum err ledger_state_read_account(const struct ledger_state *s, struct str account,
                                             uint64_t head, struct ledger_account_read *out);
void ledger_account_read_fini(struct ledger_account_read *r);

struct ledger_supply_row {
    struct str asset;
    struct money minted, burned, held;
};
size_t ledger_state_supply(const struct ledger_state *s, struct ledger_supply_row *out,
                           size_t max); /* creation order */
bool ledger_state_read_hold(const struct ledger_state *s, struct core_key id_key,
                            struct money *out_remaining);
struct money ledger_state_read_reversed(const struct ledger_state *s, uint64_t seq);

/* Names behind an effect, for replies and events. */
struct str ledger_state_row_account(const struct ledger_state *s, uint32_t row);
struct str ledger_state_row_asset(const struct ledger_state *s, uint32_t row);

struct ledger_counts {
    uint64_t accounts, rows, open_holds, reversals, assets;
};
struct ledger_counts ledger_state_counts(const struct ledger_state *s);

/*
 * State records, the form in which state is written down (runs) and digested:
 *   A account 0 asset → available u128, held u128, last_seq u64      N account 0 lane(be16) → counter u64
 *   S asset → minted u128, burned u128                                R seq(be64) → reversed u128
 *   H hold id → seq u64, remaining u128, hold_until u64, account_len u8, account, asset      (empty value = gone)
 */
enum {
    STATE_KEY_MAX = CORE_ACCOUNT_MAX + 1 + CORE_ASSET_MAX,
    STATE_VALUE_MAX = 33 + CORE_ACCOUNT_MAX + CORE_ASSET_MAX
};
struct ledger_state_record {
    char type;
    uint16_t key_len, value_len;
    uint8_t key[STATE_KEY_MAX], value[STATE_VALUE_MAX];
};
typedef void ledger_state_record_fn(void *ctx, const struct ledger_state_record *r);

/* All committed records, unordered. Only while nothing commits. */
void ledger_state_each(const struct ledger_state *s, ledger_state_record_fn *fn, void *ctx);
/* SHA-256 of all committed records in order of (type, key), each as type | key_len u16 | key | val_len u16 | value. */
void ledger_state_digest(const struct ledger_state *s, struct sha256 *out_digest);
/* Before loading: about this many accounts will come. */
void ledger_state_load_begin(struct ledger_state *s, uint64_t accounts);
/* Puts one record into both halves of a state that is being loaded. ERR_CORRUPT when malformed. */
NODISCARD enum err ledger_state_load(struct ledger_state *s, const struct ledger_state_record *r);
/* After loading: Σ(available+held) = minted − burned for every asset, else ERR_CORRUPT. */
NODISCARD enum err ledger_state_load_done(struct ledger_state *s);
/* The record an effect leaves behind (its new value). `seq_end` as in commit. */
void ledger_state_record_of(const struct ledger_state *s, const struct ledger_effect *fx, uint64_t seq_end,
                            struct ledger_state_record *out);

#endif
