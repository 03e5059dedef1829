/*
 * The bounded channel and its shutdown, one level above the code: each atomic block is one atomic operation of
 * src/rt/chan.c or one critical section of src/rt/word.c.
 *
 *   safety     nothing lost, nothing twice, never more than the capacity, everybody can end
 *   ends       with a fair scheduler everybody ends once the channel is closed
 *   served     what was accepted is received
 *
 * liveness with: -DCONSUMERS=1
 * -DBROKEN_SLEEP    a receiver sleeps without looking at the word again
 * -DBROKEN_WAKE     a sender looks for sleepers before it publishes, not in the same operation
 */
#define PRODUCERS 2
#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#define CAP       2
#define ITEMS     3 /* two of the first producer, one of the second */

byte head, tail;             /* positions */
bool closed;                 /* the tail word's bit */
bool head_closed;            /* the head word's, for senders asleep */
byte refused;
byte ended;
bool in_queue[ITEMS], got[ITEMS];
byte slot[CAP];

/* One waiter per thread: in line for a word, then picked. */
bool r_waits[2], r_picked[2];
bool s_waits[PRODUCERS], s_picked[PRODUCERS];

inline wake_receiver()
{
    atomic {
        if
        :: r_waits[0] -> r_waits[0] = false; r_picked[0] = true
        :: !r_waits[0] && r_waits[1] -> r_waits[1] = false; r_picked[1] = true
        :: else
        fi
    }
}

inline wake_sender()
{
    atomic {
        if
        :: s_waits[0] -> s_waits[0] = false; s_picked[0] = true
        :: !s_waits[0] && s_waits[1] -> s_waits[1] = false; s_picked[1] = true
        :: else
        fi
    }
}

proctype producer(byte id)
{
    byte item, seen_head;
    bool seen_closed, waited;
    for (item : 2 * id .. 1 + id) {
again:
        atomic { seen_head = head; seen_closed = head_closed }
#ifdef BROKEN_WAKE
        waited = r_waits[0] || r_waits[1];
#endif
        if
        :: atomic { closed -> refused++; seen_head = 0; seen_closed = false }
        :: atomic {
               !closed && tail - head < CAP ->
               assert(!in_queue[item] && !got[item]);
               slot[tail % CAP] = item;
               in_queue[item] = true;
               tail++;
               assert(tail - head <= CAP);
               seen_head = 0;
               seen_closed = false;
#ifndef BROKEN_WAKE
               waited = r_waits[0] || r_waits[1]
#endif
           }
           if
           :: atomic { waited -> waited = false }
              wake_receiver()
           :: else
           fi
        :: atomic { !closed && tail - head == CAP -> skip }
           atomic { /* get in line, unless the word changed since it was seen */
               if
               :: head == seen_head && head_closed == seen_closed -> s_waits[id] = true; s_picked[id] = false
               :: else -> goto again
               fi;
               seen_head = 0;
               seen_closed = false
           }
           s_picked[id];
           goto again
        fi
    }
    ended++
}

proctype consumer(byte id)
{
    byte item, seen_tail;
    bool seen_closed, waited;
    do
    :: atomic { head < tail ->
           item = slot[head % CAP];
           assert(in_queue[item] && !got[item]);
           in_queue[item] = false;
           got[item] = true;
           head++;
           waited = s_waits[0] || s_waits[1]
       }
       if
       :: atomic { waited -> waited = false }
          wake_sender()
       :: else
       fi
    :: atomic { head == tail && closed -> break }
    :: atomic { head == tail && !closed -> seen_tail = tail; seen_closed = closed }
       atomic {
           if
#ifdef BROKEN_SLEEP
           :: true -> r_waits[id] = true; r_picked[id] = false
#else
           :: tail == seen_tail && closed == seen_closed -> r_waits[id] = true; r_picked[id] = false
           :: else -> seen_tail = 0; seen_closed = false; goto next
#endif
           fi;
           seen_tail = 0;
           seen_closed = false
       }
       r_picked[id];
next:  skip
    od;
    ended++
}

/* Comes at any moment, or only after all the work is done: then nobody but the partners wakes a sleeper. */
proctype shutdown()
{
    if
    :: skip
    :: skip -> head == ITEMS
    fi;
    atomic { closed = true }
    atomic { head_closed = true }
    wake_sender();
    wake_sender();
    wake_receiver();
    wake_receiver();
    ended++
}

init {
    atomic {
        run producer(0);
        run producer(1);
        run consumer(0);
#if CONSUMERS == 2
        run consumer(1);
#endif
        run shutdown()
    }
    ended == PRODUCERS + CONSUMERS + 1;
    assert(head == tail); /* all that was accepted was received */
    assert(tail + refused == ITEMS)
}

ltl ends { <> (ended == PRODUCERS + CONSUMERS + 1) }
ltl served { [] (in_queue[0] -> <> got[0]) }
