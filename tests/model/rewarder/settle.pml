/*
 * Compute -> Seal -> Emit -> Ledger, with crashes anywhere, lost replies, requests that arrive late or twice, and restarts.
 * Two chunks, one lane each; the emitter remembers placements only in memory (settle.log is a cache that may be lost).
 *
 *   NoDuplicateRun  an epoch is sealed once
 *   NoDoublePay     the ledger applies each chunk at most once
 *   NoOmission      settled implies every chunk is in the ledger
 *   R14 (liveness)  an admitted run ends settled (the ledger is fair, crashes are finite)
 */
#define CHUNKS 2

byte sealed = 0;          /* durable: seal.json */
bool settled = false;     /* durable: the line in registry.log */
byte applied[CHUNKS];     /* the ledger's log: how often each unit took effect */
byte in_flight[CHUNKS];   /* copies of the request in sockets */
bool placed[CHUNKS];      /* the emitter's memory */
byte crashes = 0, losses = 0; /* finite, or nothing ends */
bool maybe_sent = false;  /* the emitter's memory; true after every restart */

/* The ledger: a copy that arrives commits, or is a duplicate of the same idempotency id. */
#define ARRIVE(c)                                                                                                      \
    atomic {                                                                                                           \
        in_flight[c] > 0 -> in_flight[c]--;                                                                            \
        if                                                                                                             \
        :: applied[c] == 0 -> applied[c]++                                                                             \
        :: else -> skip /* duplicate */                                                                                \
        fi                                                                                                             \
    }

proctype Ledger()
{
end:
    do
    :: ARRIVE(0)
    :: ARRIVE(1)
    od
}

inline forget()
{
    d_step {
        placed[0] = false;
        placed[1] = false;
        maybe_sent = true
    }
}

inline crash()
{
    atomic { crashes < 2 -> crashes++; forget() }
}

active proctype Rewarder()
{
    byte c;
    run Ledger();
start:
    /* compute and seal: the rename is one step; a crash before it leaves nothing */
    if
    :: sealed == 0 ->
        if
        :: crash() -> goto start
        :: sealed++
        fi
    :: else -> skip
    fi;
    assert(sealed == 1); /* NoDuplicateRun */
    do
    :: settled -> break
    :: !settled ->
        c = 0;
        do
        :: c < CHUNKS && placed[c] -> c++
        :: c < CHUNKS && !placed[c] ->
            if
            :: crash() -> goto start
            :: maybe_sent && applied[c] > 0 -> placed[c] = true /* unit(idem_id) found it, content compared */
            :: in_flight[c] < 2 -> in_flight[c]++;              /* send, or send the same bytes again */
                if
                :: crash() -> goto start                        /* died waiting */
                :: losses < 3 -> losses++                       /* the reply was lost: round again */
                :: applied[c] > 0 -> placed[c] = true           /* committed or duplicate came back */
                fi
            :: applied[c] > 0 -> placed[c] = true
            fi
        :: c == CHUNKS -> break
        od;
        if
        :: placed[0] && placed[1] -> /* bijection checked, settlement.json and the line are durable in one step */
            if
            :: crash() -> goto start
            :: atomic { assert(applied[0] == 1 && applied[1] == 1); settled = true } /* NoOmission */
            fi
        :: else -> skip
        fi
    od
}

ltl no_double_pay { [] (applied[0] <= 1 && applied[1] <= 1) }
ltl no_omission { [] (settled -> (applied[0] == 1 && applied[1] == 1)) }
ltl no_early_pay { [] ((applied[0] + applied[1] > 0) -> sealed == 1) }
ltl ends_settled { <> settled }
