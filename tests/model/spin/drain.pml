/*
 * The way down (src/rt/drain.c, supervisor.c): two tasks in step 1, one in step 2, which ends once its queue is closed
 * by the step's hook. A task may hang; a deadline may pass; a second signal may come; all at any moment.
 *
 *   safety     STOPPED only when no task runs or it was given up; step 2 is not entered before step 1 is through; a
 *              drain in which nothing was cancelled never says ABORTING
 *   stops      every drain ends
 *
 * -DBROKEN_ORDER    step 2 is entered without waiting for step 1
 */
mtype = { RUNNING, DRAINING, ABORTING, STOPPED };
mtype state = RUNNING;

#define TASKS 3
byte step_of[TASKS];
bool alive[TASKS], asked[TASKS], cancelled[TASKS], leaked[TASKS], hangs[TASKS];
byte at;          /* the step entered, 0: none yet */
bool hurry, deadline, grace_over;
byte aborted;

proctype task(byte id)
{
    if
    :: asked[id] && !hangs[id]     /* finishes when asked */
    :: cancelled[id] && !hangs[id] /* or is got out of its wait */
    :: leaked[id]                  /* hangs: nobody looks at it any more */
    fi;
    alive[id] = false
}

/* Deadlines and the second signal come when they like, or not at all before the drain is over. */
proctype world()
{
    do
    :: state == DRAINING || state == ABORTING -> hurry = true
    :: at > 0 && state != STOPPED -> deadline = true
    :: state == ABORTING -> grace_over = true
    :: state == STOPPED -> break
    od
}

#define LEFT(s) ((step_of[0] == s && alive[0] && !leaked[0]) || (step_of[1] == s && alive[1] && !leaked[1]) || \
                 (step_of[2] == s && alive[2] && !leaked[2]))

#define EACH_LEFT(s, set)                                              \
    t = 0;                                                             \
    do                                                                 \
    :: t < TASKS ->                                                    \
        if                                                             \
        :: step_of[t] == s && alive[t] && !leaked[t] -> set            \
        :: else                                                        \
        fi;                                                            \
        t++                                                            \
    :: else -> break                                                   \
    od

proctype supervisor()
{
    byte i, t;
    state = DRAINING;
    for (i : 1 .. 2) {
        atomic {
#ifndef BROKEN_ORDER
            assert(i == 1 || !LEFT(1));
#endif
            at = i;
            deadline = false;
            grace_over = false;
            EACH_LEFT(i, asked[t] = true)
        }
        if
        :: !LEFT(i)
#ifdef BROKEN_ORDER
        :: i == 1
#endif
        :: atomic { LEFT(i) && (deadline || hurry) ->
               state = ABORTING;
               EACH_LEFT(i, cancelled[t] = true; aborted++)
           }
           if
           :: !LEFT(i)
           :: atomic { LEFT(i) && grace_over -> EACH_LEFT(i, leaked[t] = true) }
           fi
        fi
    }
    atomic {
        assert(!LEFT(1) && !LEFT(2));
        assert((aborted > 0) == (state == ABORTING));
        state = STOPPED
    }
}

init {
    atomic {
        byte i;
        for (i : 0 .. TASKS - 1) {
            alive[i] = true;
            step_of[i] = (i < 2 -> 1 : 2);
            if
            :: hangs[i] = true
            :: hangs[i] = false
            fi
        }
        run task(0);
        run task(1);
        run task(2);
        run world();
        run supervisor()
    }
}

#define PATIENT (!hangs[0] && !hangs[1] && !hangs[2])

/* Tasks that do not hang end by themselves; for the others deadlines must come. */
ltl stops { (([] <> hurry) && ([] <> grace_over)) || (<> [] PATIENT) -> <> (state == STOPPED) }
