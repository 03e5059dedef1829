/*
 * Validated -> Sequenced -> Committed, with a crash anywhere. Three jobs, one of them a repetition of another; one sequencer, one
 * committer that groups and flushes; power may fail before or after the flush. Proven: seqs without gap or reuse, no unit twice,
 * balances conserve, what was acknowledged is durable, each job is answered at most once per life and never both ways.
 */
#define JOBS 3
#define UNIT(j) ((j) == 2 -> 0 : (j)) /* job 2 repeats job 0 */

chan preval = [2] of { byte };
chan commit = [2] of { byte };

byte journal[4];      /* durable: unit per seq */
byte durable;         /* seqs durable */
byte next_seq;        /* sequencer's */
bool known[JOBS];     /* unit seen by the sequencer (ahead) */
bool applied[JOBS];   /* unit in the committed state */
bool acked[JOBS];     /* unit acknowledged to somebody, over all lives */
byte answered[JOBS];  /* answers per job in this life */
byte supply, balance; /* minted, and what accounts hold: committed half */
bool writing, crashed, doors_done, sequencer_done;
byte lives;

inline answer(j, good)
{
    answered[j]++;
    assert(answered[j] == 1);
    if
    :: good -> acked[UNIT(j)] = true
    :: else
    fi
}

proctype Doors()
{
    byte j = 0, old;
    do
    :: j < JOBS && !crashed -> atomic {
        if
        :: full(preval) -> preval?old; answer(old, false) /* drop oldest, and tell its caller */
        :: nfull(preval) -> skip
        fi;
        preval!j;
        j++ }
    :: j == JOBS || crashed -> break
    od;
    doors_done = true
}

proctype Sequencer()
{
    byte j;
    do
    :: crashed -> break
    :: !crashed && doors_done && empty(preval) -> break
    :: atomic { !crashed && nempty(preval) ->
        preval?j;
        if
        :: full(commit) -> answer(j, false) /* refused before a seq: nothing is burned */
        :: nfull(commit) ->
            if
            :: known[UNIT(j)] -> commit!(j + 10) /* duplicate: goes along, answered when durable */
            :: else -> known[UNIT(j)] = true; next_seq++; commit!j
            fi
        fi }
    od;
    sequencer_done = true
}

proctype Committer()
{
    byte j, k, n, group[2];
    do
    :: crashed -> break
    :: !crashed && sequencer_done && empty(commit) -> break
    :: !crashed && nempty(commit) ->
        n = 0;
        do
        :: n < 2 && nempty(commit) -> commit?j; group[n] = j; n++
        :: n > 0 -> break
        od;
        assert(!writing);
        writing = true;
        if
        :: crashed -> break
        :: else -> atomic { /* the flush: all of the group or nothing */
            k = 0;
            do
            :: k < n -> if
                :: group[k] < 10 -> durable++; journal[durable - 1] = UNIT(group[k])
                :: else
                fi; k++
            :: k == n -> break
            od }
        fi;
        if
        :: crashed -> break
        :: else -> atomic {
            k = 0;
            do
            :: k < n ->
                if
                :: group[k] < 10 -> assert(!applied[UNIT(group[k])]); applied[UNIT(group[k])] = true; supply++; balance++
                :: else
                fi;
                answer(group[k] % 10, true);
                k++
            :: k == n -> break
            od;
            writing = false }
        fi
    od
}

inline replay()
{
    byte s;
    d_step {
        s = 0;
        do
        :: s < JOBS -> applied[s] = false; known[s] = false; answered[s] = 0; s++
        :: s == JOBS -> break
        od;
        supply = 0;
        balance = 0;
        s = 0;
        do
        :: s < durable ->
            assert(!applied[journal[s]]); /* no unit twice in the log */
            applied[journal[s]] = true;
            known[journal[s]] = true;
            supply++;
            balance++;
            s++
        :: s == durable -> break
        od;
        next_seq = durable;
        s = 0;
        do
        :: s < JOBS -> assert(!acked[s] || applied[s]); s++ /* acknowledged is durable */
        :: s == JOBS -> break
        od;
        assert(supply == balance);
    }
}

init
{
    byte life = 0;
    byte junk;
    do
    :: life < 2 ->
        crashed = false;
        writing = false;
        doors_done = false;
        sequencer_done = false;
        replay();
        atomic { run Doors(); run Sequencer(); run Committer() };
        if
        :: crashed = true /* power fails, at any moment */
        :: (_nr_pr == 1)
        fi;
        (_nr_pr == 1);
        crashed = false;
        do
        :: nempty(preval) -> preval?junk
        :: nempty(commit) -> commit?junk
        :: empty(preval) && empty(commit) -> break
        od;
        life++
    :: life == 2 -> break
    od;
    replay();
    assert(next_seq == durable && durable <= 2)
}
