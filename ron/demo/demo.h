/*
 * ron demo: a day in the life, told in claims. A claim is one sentence that was checked; the first one that does not hold
 * ends its chapter, and the demo ends with CMD_FAILED.
 *
 *     if (!demo_call(d, "wallet", 200, &(struct client_request){…}, &a))
 *         return;                                         the refusal was printed as a failed claim
 *     demo_claim(d, strcmp(client_str(a.json, "amount"), "250") == 0, "the shop received 250");
 *     client_free(&a);
 *
 * Names carry a random word, so that a demo can be played again on the same system.
 *
 * Somebody who watches on a terminal is given the time to read a sentence before the next one comes (d->paced); the work
 * itself takes about a second.
 *
 * Ownership   demo_call fills an answer that the caller frees, only when it returns true.
 * Threads     The main thread.
 */
#ifndef RON_DEMO_H
#define RON_DEMO_H

#include "ron/client.h"

struct demo {
    struct cmd_ctx *ctx;
    char run[12]; /* the random word */
    char alice[64], shop[64];
    char txid[64]; /* the transfer whose receipt is proven */
    char receipt_root[80];
    const char *chapter;
    json_t *log; /* what --json prints */
    int claims, failed;
    bool paced;        /* a person reads along */
    int64_t paused_ms; /* for her, in all */
};

void demo_chapter(struct demo *d, const char *title) RT_BLOCKS;
/* Prints the sentence with its verdict; returns `holds`. */
bool demo_claim(struct demo *d, bool holds, const char *fmt, ...) RT_BLOCKS
__attribute__((format(printf, 3, 4)));
/* One request whose status must be `want`; anything else is a failed claim. */
bool demo_call(struct demo *d, const char *service, int want, const struct client_request *rq,
               struct client_answer *out) RT_BLOCKS;
/* Asks until the answer's `member` is one of `values` (NULL ends the list) or ten seconds are over. */
bool demo_until(struct demo *d, const char *service, const char *path, const char *member,
                const char *const *values, struct client_answer *out) RT_BLOCKS;

/* The chapters. */
void demo_money(struct demo *d) RT_BLOCKS;
void demo_messages(struct demo *d) RT_BLOCKS;
void demo_rewards(struct demo *d) RT_BLOCKS;
void demo_tiles(struct demo *d) RT_BLOCKS;
void demo_proof(struct demo *d) RT_BLOCKS;

/* A system of one's own for one demo: `ron up` as a child on free ports with data that is deleted afterwards. */
int demo_with_own_system(struct cmd_ctx *ctx) RT_BLOCKS;

#endif
