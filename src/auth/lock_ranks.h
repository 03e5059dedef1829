/* Ranks of this layer's locks. None is ever held while another is taken; the numbers only order them
 * against callers. */
#ifndef RON_AUTH_LOCK_RANKS_H
#define RON_AUTH_LOCK_RANKS_H

enum {
    AUTH_RANK_KEYS = 910,   /* which keyring and revocation list are in force */
    AUTH_RANK_UPKEEP = 911, /* failure samples */
    AUTH_RANK_CACHE = 920,
    AUTH_RANK_RATE = 930,
};

#endif
