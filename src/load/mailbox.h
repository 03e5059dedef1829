/*
 * Load for the mailbox: messages of 256 bytes that carry their number.
 *
 *   cycle    each slot sends one, receives one (its own or another's) and acknowledges it
 *   send     only sends; over OAP `batch` messages a request
 *   receive  receives and acknowledges what waits
 *
 * Every message of a run has its number in it, so that a cycle can say at the end which came back, and which came back twice: at the
 * end it receives what is left in its topics.
 *
 * Memory      Two bytes for every message of a cycle, up to LOAD_MAILBOX_MESSAGES_MAX: the load ends there.
 */
#ifndef RON_LOAD_MAILBOX_H
#define RON_LOAD_MAILBOX_H

#include "load/http.h"
#include "load/mill.h"

enum { LOAD_MAILBOX_PAYLOAD = 256, LOAD_MAILBOX_MESSAGES_MAX = 200 << 20 };

enum load_mailbox_mode { LOAD_MAILBOX_CYCLE, LOAD_MAILBOX_SEND, LOAD_MAILBOX_RECEIVE };

struct load_mailbox_spec {
    const struct load_addr *addrs;
    size_t n_addrs;
    const char *token;
    enum load_mailbox_mode mode;
    const char *topic; /* head of the topics' names: <topic>/0 … */
    unsigned topics, conns, inflight, batch;
    bool check; /* cycle only */
    double
        rate; /* sends a second, whatever comes back; 0: as fast as it answers. A 429 is then an answer, not a reason to ask again */
    bool awake; /* see the mill */
    int64_t ms;
    uint64_t count; /* messages; 0: as many as fit into the time */
    int64_t timeout_ms, patience_ms;
    atomic_bool *stop;
    void (*each_second)(void *app, double at_s, uint64_t done, const struct load_addr *where);
};

struct load_mailbox_result {
    struct load_mill_result load;
    struct load_complaint complaint;
    struct load_times refused; /* with a rate: how long a 429 took */
    bool checked;
    uint64_t acknowledged, found,
        doubled; /* sends that were answered; of those, received; received more than once */
};

/* ERR_REFUSED: nobody there; ERR_RANGE: over OAP it only sends. */
NODISCARD enum err load_mailbox_run(const struct load_mailbox_spec *spec, struct load_mailbox_result *out);

/* The payload of message `number` of run `run`, for whoever is compared. */
void load_mailbox_payload(uint64_t run, uint64_t number, uint8_t out[LOAD_MAILBOX_PAYLOAD]);

#endif
