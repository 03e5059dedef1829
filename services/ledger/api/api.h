/*
 * What the doors share: who is asking, numbers in queries, results as JSON.
 *
 * Threads     Handlers run on the loop's thread and must not block; what may touch the disk goes to a reader.
 */
#ifndef RON_LEDGER_API_API_H
#define RON_LEDGER_API_API_H

#include "base/json_write.h"
#include "services/ledger/reads.h"
#include "services/ledger/service.h"

/* One HTTP read on its way through read_tx; lives in the request's arena. */
struct ledger_http_read {
    struct ledger_read read; /* door = the net_req */
    struct net_req *rq;
    uint64_t a, b, c;
    struct str text;
    struct auth_cap *cap; /* NULL: open route */
    int64_t started_ns;
};

/* Sends the closure to a reader; answers 429 when the queue is full. */
void ledger_http_read_send(struct ledger_service *s, struct net_req *rq, const struct ledger_http_read *r,
                           void (*run)(struct ledger_service *s, struct ledger_read *r));

enum ledger_access {
    ACCESS_READ,      /* capability with op read; account caveats are judged by the handler */
    ACCESS_READ_ALL,  /* … and without an account caveat: it shows everybody's entries */
    ACCESS_OPEN_ROOTS /* open while public.roots is on */
};
/* A copy says how far it is: what it answers is at least as new as this. */
void ledger_http_mark_position(struct ledger_service *s, struct net_req *rq);
/* False: it has been answered. *out_cap may be NULL on open routes. */
bool ledger_http_access(struct ledger_service *s, struct net_req *rq, enum ledger_access access,
                        struct auth_cap **out_cap);

/* A number in the query; false: a 400 has been sent. Absent: `otherwise`. */
bool ledger_http_number(struct net_req *rq, const char *name, uint64_t otherwise, uint64_t min,
                        uint64_t max, uint64_t *out);

/* Whether a token covers this account for reading. */
bool ledger_covers(const struct auth_cap *cap, struct str account);

/* Whose token this is: verified here, or noted for the kms when that is elsewhere. Takes the job's caller from it.
 * ERR_UNAUTHENTICATED, ERR_RATE_LIMITED: the door answers. */
NODISCARD enum err ledger_job_identify(struct ledger_service *s, struct ledger_job *job, struct str token);

/* Fills units from job->body, {"units":[…]}. ERR_BAD_REQUEST with where it is at fault, ERR_TOO_LARGE, ERR_BUSY (arena). */
NODISCARD enum err ledger_ingest_decode_json(struct ledger_job *job);

/* ---- results ---- */
void ledger_json_entry(struct json_w *w, const struct core_entry *e); /* {"id":…} */
void ledger_json_result(struct json_w *w, struct ledger_job *job,
                        struct ledger_job_unit *u); /* one unit's result */
void ledger_json_unit(struct json_w *w, struct ledger *l,
                      const struct ledger_unit_facts *f); /* GET /v1/units */
void ledger_json_entry_info(struct json_w *w, struct ledger *l, const struct ledger_unit_facts *f,
                            uint32_t i);
void ledger_json_reject_details(struct json_w *w, const struct ledger_reject *r, uint32_t index);
/* All rejected for one and the same reason? */
bool ledger_job_refused_alike(const struct ledger_job *job, enum err *out_reason);
struct bytes ledger_json_job_details(struct ledger_job *job,
                                     struct buf *b); /* of a job refused as a whole */

/* Note of a size if it ends a group, else an empty string; in the arena. */
struct str ledger_note_text(struct ledger_service *s, uint64_t size, struct arena *a) RT_BLOCKS;

#endif
