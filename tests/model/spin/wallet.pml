/*
 * Two clients pay from one account and lane over a ledger whose requests and answers may be lost, delayed or repeated.
 * The wallet tries a unit at most twice, then asks the ledger what became of it; "surely absent" is only concluded when
 * the ledger's time is past the unit's not_after, because the ledger refuses whatever it sees later.
 *
 * Safe:   at most one commit per nonce and per key; no client is told an outcome that is not so; money is conserved.
 * Live:   under finitely many losses every operation settles (no state without a way on, checked as absence of
 *         invalid end states).
 */
#define CLIENTS 2
#define TRIES 2
#define LOSSES 3

mtype = { NONE, COMMITTED, REFUSED };

byte last = 0;               /* nonce of the lane */
byte commits[CLIENTS];       /* units committed per key */
byte by_nonce[4];            /* and per nonce */
byte losses = 0;             /* finite: the ledger is fair in the end */
byte poor = 0;               /* how often funds lacked for a moment */
bool late[CLIENTS];          /* ledger time is past the unit's not_after */
byte available = 10, paid = 0;
mtype told[CLIENTS];

chan to_ledger = [4] of { byte };          /* key: a copy of the unit on the wire */
chan answer[CLIENTS] = [4] of { mtype };   /* what the ledger says to each try */

/* Nonce of the operation: both clients want the same one. */
#define NONCE(k) 1

/* The ledger judges one copy: duplicates are answered like the first, late ones refused. */
inline judge(k)
{
    if
    :: commits[k] > 0 -> verdict = COMMITTED
    :: commits[k] == 0 && late[k] -> verdict = REFUSED
    :: commits[k] == 0 && !late[k] && last + 1 != NONCE(k) -> verdict = REFUSED
    :: commits[k] == 0 && !late[k] && poor < 1 -> poor++; verdict = REFUSED   /* no funds now; a later copy may find some */
    :: commits[k] == 0 && !late[k] && last + 1 == NONCE(k) ->
        last++;
        commits[k]++;
        by_nonce[NONCE(k)]++;
        available--;
        paid++;
        verdict = COMMITTED
    fi
}

active proctype ledger()
{
    byte k;
    mtype verdict;
end:
    do
    :: to_ledger ? k ->
        if
        :: losses < LOSSES -> losses++               /* the request is lost */
        :: losses < LOSSES && len(to_ledger) < 4 -> losses++; to_ledger ! k   /* delayed behind others */
        :: atomic { judge(k); answer[k] ! verdict }
        :: losses < LOSSES -> losses++; atomic { judge(k); verdict = NONE }   /* the answer is lost */
        fi
    od
}

/* Time passes for one unit at some moment after it was sent. */
active [CLIENTS] proctype clock()
{
    late[_pid - 1] = true
}

active [CLIENTS] proctype operation()
{
    byte k = _pid - 1 - CLIENTS;
    byte tries = 0;
    bool unknown = false;
    mtype said = NONE, kept = NONE;

    do
    :: tries < TRIES ->
        tries++;
        to_ledger ! k;
        if
        :: answer[k] ? said ->
            if
            :: said == COMMITTED -> goto committed
            :: said == REFUSED && !unknown -> goto refused   /* final: nothing before it may still arrive */
            :: said == REFUSED && unknown -> kept = REFUSED; goto doubt
            fi
        :: unknown = true                                    /* no answer in time: the copy may be anywhere */
        fi
    :: tries == TRIES -> goto doubt
    od;
doubt:
    do
    :: atomic { commits[k] > 0 -> goto committed }           /* the unit is found */
    :: atomic { commits[k] == 0 && late[k] -> goto refused } /* surely absent */
    od;
committed:
    told[k] = COMMITTED;
    assert(commits[k] == 1);
    goto done;
refused:
    told[k] = REFUSED;
    assert(commits[k] == 0);
done:
    skip
}

/* What must hold in every state. */
active proctype monitor()
{
end:
    do
    :: atomic {
        !(commits[0] <= 1 && commits[1] <= 1 && by_nonce[1] <= 1 && available + paid == 10 &&
          !(told[0] == REFUSED && commits[0] > 0) && !(told[1] == REFUSED && commits[1] > 0)) -> assert(false)
       }
    od
}
