/*
 * The life of one message under leases, crashes and a lazy journal (Spin; tests/model/spin/mailbox.test runs it).
 *
 * One message, one worker, two consumers that may be slow, a clock that may end any lease at any moment, and up to CRASHES
 * crashes that forget whatever was not flushed: ENQ and LEASE are flushed before their answers, SETTLE and FAIL are lazy. Compaction
 * writes the message again (MOVE) so that the segment it came in can go: the worker agrees when all it did is flushed.
 *
 * Safety    never lost: accepted and not settled means waiting, leased or dead; one lease at a time; the attempt a consumer was
 *           given is never given again (fence); an ack by a stale attempt changes nothing; at most MAX deliveries, then dead
 * Liveness  under fairness an accepted message ends acked or dead
 */
#define MAX 3
#define CRASHES 2

mtype = { NONE, READY, LEASED, DEAD, DONE };

mtype state = NONE;          /* in memory */
byte attempt = 0, tries = 0;
mtype d_state = NONE;        /* in the journal */
byte d_attempt = 0, d_tries = 0;
byte crashes = 0;
byte last_given = 0;         /* highest attempt any consumer was ever given */
byte deliveries = 0;
bool acked = false;          /* some consumer's ack was answered 200 */
bool lazy_ack = false;       /* and its record is not yet written */

bool copied = false;         /* written again, perhaps only into the group */
bool d_copied = false;       /* and that is flushed */
bool d_original = true;      /* the segment it came in is there */

chan to[2] = [1] of { byte };

inline flush() { d_state = state; d_attempt = attempt; d_tries = tries; d_copied = copied; lazy_ack = false }

active proctype producer() {
    atomic { state == NONE -> state = READY; flush() }   /* durable before the answer */
}

active proctype worker() {
end:
    do
    :: atomic { state == READY && tries < MAX && empty(to[0]) && empty(to[1]) ->
           attempt++; tries++; state = LEASED; flush();
           assert(attempt > last_given);                  /* fencing token strictly rises, also over crashes */
           last_given = attempt; deliveries++;
           if :: to[0]!attempt :: to[1]!attempt fi }
    :: atomic { state == READY && tries >= MAX -> state = DEAD }
    :: atomic { state == LEASED ->                        /* the deadline passes */
           if :: tries >= MAX -> state = DEAD :: else -> state = READY fi }
    :: atomic { state != NONE && (state != d_state || lazy_ack || copied != d_copied) -> flush() } /* lazy_flush */
    :: atomic { state != NONE && state != DONE && d_original && !copied -> copied = true }         /* re-append */
    :: atomic { d_original && state == d_state && copied == d_copied && !lazy_ack && (state == DONE || d_copied) ->
           d_original = false }                           /* agreed: stripped */
    od
}

proctype consumer(byte me) {
    byte mine;
end:
    do
    :: to[me]?mine ->
        if
        :: skip                                           /* forgets it, or is too slow */
        :: atomic { (state == LEASED || state == READY) && mine == attempt -> state = DONE; acked = true; lazy_ack = true }
        :: atomic { (state == LEASED || state == READY) && mine != attempt -> skip }  /* 409: nothing changes */
        :: atomic { state == DONE || state == DEAD -> skip }
        :: atomic { state == LEASED && mine == attempt -> if :: tries >= MAX -> state = DEAD :: else -> state = READY fi } /* nack */
        fi
    od
}

active proctype disaster() {
    do
    :: atomic { crashes < CRASHES && d_state != NONE ->
           crashes++;
           copied = d_copied;
           if
           :: d_original || d_copied || d_state == DONE ->
               state = (d_state == LEASED -> READY : d_state); attempt = d_attempt; tries = d_tries
           :: else -> state = NONE                        /* gone with its segment: never_lost */
           fi;
           if :: lazy_ack -> acked = false; lazy_ack = false :: else -> skip fi }
    :: break
    od
}

init { run consumer(0); run consumer(1) }

ltl never_lost { [] ((d_state != NONE) -> (state == READY || state == LEASED || state == DEAD || state == DONE)) }
ltl ack_is_final { [] ((acked && !lazy_ack) -> state == DONE) }
ltl bounded { [] (deliveries <= MAX + CRASHES * MAX) }
ltl settled_in_the_end { (<> (d_state != NONE)) -> <> [] (state == DEAD || state == DONE) }
