/*
 * Two ledgers on one stream of groups: lease, epoch, append, take-over. Requests to the database may be under way while their
 * sender crashes or takes its connection for lost; answers may be lost; a lease may run out at any moment, also under a writer
 * that is only slow. The database does one statement at a time (a row lock makes it so) and forgets nothing.
 *
 * Safe:   what was acknowledged is the database's group for ever, acknowledged once and under the epoch of its row; in one epoch
 *         one ledger acknowledges; epochs along the log do not go back; who writes in the current epoch knows the whole log;
 *         a frame that is set aside was never acknowledged; histories never differ before the last frame.
 * Live:   no state without a way on (absence of invalid end states), while losses and crashes are finite.
 */
#define NODES 2
#define GROUPS 2
#define TAKES 3 /* take-overs in all */
#define LOSSES 1
#ifndef CRASHES
#define CRASHES 1
#endif

byte db_epoch = 0, db_head = 0;
byte holder = 9;
bool expired = true;
byte row[GROUPS + 2], row_epoch[GROUPS + 2];
byte acked[GROUPS + 2];  /* which value was acknowledged */
byte acker[TAKES + 2];   /* 1 + who acknowledged in this epoch */
byte next_value = 1, losses = 0, crashes = 0;

chan wire[NODES] = [3] of { byte, byte, byte, byte, byte };  /* group, value, value before, epoch, connection */
chan said[NODES] = [3] of { byte, byte };                    /* connection, verdict */
#define INSERTED 1
#define NOTHING 2
#define EXISTS 3

/* The statement: epoch and root before are demanded where the row is inserted. */
active proctype database()
{
    byte n, g, v, before, e, c, verdict;
end:
    do
    :: atomic {
        if
        :: wire[0]?g, v, before, e, c -> n = 0
        :: wire[1]?g, v, before, e, c -> n = 1
        fi;
        if
        :: e == db_epoch && (g == 1 || row[g - 1] == before) && row[g] == 0 ->
            row[g] = v;
            row_epoch[g] = e;
            db_head = g;
            assert(g == 1 || row_epoch[g] >= row_epoch[g - 1]);
            verdict = INSERTED
        :: e == db_epoch && (g == 1 || row[g - 1] == before) && row[g] != 0 -> verdict = EXISTS
        :: else -> verdict = NOTHING
        fi;
        if
        :: full(said[n])
        :: nfull(said[n]) -> said[n]!c, verdict
        fi;
        n = 0; g = 0; v = 0; before = 0; e = 0; c = 0; verdict = 0
       }
    od
}

/* Time passes: any lease may run out, whether its holder lives or not. */
active proctype clock()
{
end:
    do
    :: atomic { !expired && db_epoch < TAKES -> expired = true }
    od
}

proctype ledger(byte me)
{
    byte head = 0, mine[GROUPS + 2], epoch = 0, conn = 0, g, v, c, verdict;

standby:
    do
    :: atomic { head < db_head -> assert(head == 0 || row[head] == mine[head]); head++; mine[head] = row[head] }
    :: atomic { (expired || holder == me) && db_epoch < TAKES -> /* raise the epoch: this fences */
        db_epoch++; epoch = db_epoch; holder = me; expired = false; goto catch_up }
    :: atomic { crashes < CRASHES -> crashes++; goto restart }
    :: atomic { db_head == GROUPS && head == GROUPS -> goto done }
    :: atomic { db_epoch == TAKES -> goto done } /* the bound of this model */
    od;

catch_up:
    do
    :: atomic { head < db_head -> assert(head == 0 || row[head] == mine[head]); head++; mine[head] = row[head] }
    :: atomic { head == db_head -> assert(head == 0 || row[head] == mine[head]); break }
    od;

writer:
    do
    :: atomic { epoch != db_epoch -> goto fenced } /* seen when renewing */
    :: atomic { head == GROUPS -> goto done }
    :: atomic { crashes < CRASHES -> crashes++; goto restart }
    :: atomic { head < GROUPS ->
        assert(epoch != db_epoch || db_head == head); /* the writer of the current epoch knows everything */
        g = head + 1; v = next_value; next_value++;
        conn++;
        wire[me]!g, v, mine[head], epoch, conn };
       mine[g] = v; /* the local frame, while the row travels */
answer:
       if
       :: atomic { said[me]?c, verdict ->
           if
           :: c != conn -> goto answer /* of a connection that was given up */
           :: c == conn && verdict == INSERTED -> goto acknowledge
           :: c == conn && verdict == NOTHING -> goto fenced
           :: c == conn && verdict == EXISTS -> goto look
           fi }
       :: atomic { losses < LOSSES -> losses++; conn++; goto look }
       :: atomic { empty(wire[me]) && empty(said[me]) -> conn++; goto look } /* nothing will come */
       :: atomic { crashes < CRASHES -> crashes++; goto torn }
       fi;
look:
       /* The lease row passes through the quorum, then we look. */
       atomic {
        if
        :: epoch != db_epoch -> goto fenced_torn
        :: epoch == db_epoch && row[g] == v -> goto acknowledge
        :: epoch == db_epoch && row[g] != 0 && row[g] != v -> goto fenced_torn
        :: epoch == db_epoch && row[g] == 0 && nfull(wire[me]) -> wire[me]!g, v, mine[head], epoch, conn; goto answer
        fi };
acknowledge:
       atomic {
        assert(row[g] == v);
        assert(row_epoch[g] == epoch);
        assert(acked[g] == 0);
        assert(acker[epoch] == 0 || acker[epoch] == me + 1);
        acked[g] = v;
        acker[epoch] = me + 1;
        head = g }
    od;

fenced:
fenced_torn:
    goto torn;

torn: /* the process ends with a frame on its disk whose fate it did not learn */
    atomic { if
    :: head < GROUPS && mine[head + 1] != 0 && mine[head + 1] == v -> head++
    :: else
    fi };

restart: /* opening: compare the end of the journal with the database */
    atomic {
        epoch = 0; conn++;
        if
        :: head == 0
        :: head > 0 && head <= db_head && row[head] == mine[head]
        :: head > 0 && !(head <= db_head && row[head] == mine[head]) ->
            assert(acked[head] != mine[head]);
            assert(head == 1 || (head - 1 <= db_head && row[head - 1] == mine[head - 1]));
            mine[head] = 0;
            head--
        fi;
        v = 0; g = 0;
        goto standby
    };
done:
    skip
}

init
{
    atomic { run ledger(0); run ledger(1) }
}
