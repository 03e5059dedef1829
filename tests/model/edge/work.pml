/*
 * The work queue: two listeners, a queue of two, two workers, one of which may fail with a job in hand, and a shutdown at any
 * moment. Three requests for two names. Proven: every request is answered exactly once (answer), a name has at most one GET
 * under way (single flight), nothing queued is lost or taken twice; and under fairness everybody is answered (served).
 */
#define REQUESTS 3
#define NAMES 2
#define NAME(r) ((r) % NAMES)
#define NOBODY 255

chan work = [2] of { byte }; /* names */

bool closed, stored[NAMES], flying[NAMES], again[NAMES];
byte joined[NAMES]; /* bits of requests waiting */
byte fetching[NAMES], answered[REQUESTS], failures;
byte asked, quit;

inline answer(r)
{
    answered[r]++;
    assert(answered[r] == 1)
}

inline answer_all(n)
{
    d_step {
        byte k = 0;
        do
        :: k < REQUESTS ->
            if
            :: (joined[n] & (1 << k)) -> answer(k)
            :: else
            fi;
            k++
        :: else -> break
        od;
        k = 0;
        joined[n] = 0;
        flying[n] = false
    }
}

proctype Listener(byte r)
{
    byte n = NAME(r);
    if
    :: stored[n] -> answer(r)
    :: else ->
        atomic {
            if
            :: flying[n] -> joined[n] = joined[n] | (1 << r); n = NOBODY /* joins */
            :: else -> flying[n] = true; joined[n] = joined[n] | (1 << r)
            fi
        };
        if
        :: n == NOBODY
        :: else ->
            if
            :: stored[n] -> answer_all(n) /* filled meanwhile */
            :: else ->
                atomic {
                    if
                    :: closed || full(work) -> answer_all(n) /* 503 or 429 to all who joined */
                    :: else -> work!n
                    fi
                }
            fi
        fi
    fi;
    asked++
}

proctype Worker()
{
    byte n;
    do
    :: atomic { nempty(work) -> work?n; fetching[n]++; assert(fetching[n] == 1) };
        if
        :: atomic { failures > 0 && !again[n] -> /* the worker fails; its job goes back once */
            failures--;
            again[n] = true;
            fetching[n]--;
            if
            :: closed || full(work) -> answer_all(n)
            :: else -> work!n
            fi }
        :: stored[n] = true; atomic { fetching[n]--; answer_all(n) }
        fi
    :: closed && empty(work) -> break
    od;
    quit++
}

init {
    failures = 1;
    atomic {
        run Worker();
        run Worker();
        run Listener(0);
        run Listener(1);
        run Listener(2)
    };
    if
    :: asked == REQUESTS -> skip
    :: skip /* shutdown at any moment */
    fi;
    closed = true;
    (asked == REQUESTS && quit == 2);
    d_step {
        byte i = 0;
        do
        :: i < REQUESTS -> assert(answered[i] == 1); i++
        :: else -> break
        od;
        assert(empty(work))
    }
}

#define all_answered (answered[0] == 1 && answered[1] == 1 && answered[2] == 1)
ltl served { <> all_answered }
