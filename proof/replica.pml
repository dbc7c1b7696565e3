/* Replication of a log that goes on, of which objects are collected meanwhile, and promotion of the replica.
 *
 * Words and rules are those of FORMAT.md, section 6 (Replicas); docs/protocol.md explains this model. Each revision of
 * the source replaces the only data file, so revision r needs object r, and transaction r names it. Older objects may
 * be collected at any moment after a later revision exists. A crash is a process that takes no further step.
 */
#ifndef REVISIONS
#define REVISIONS 4
#endif
#ifndef REPLICATORS
#define REPLICATORS 2
#endif
#define PLACES (REVISIONS + 3)

mtype = { replica, promoting, location };
mtype marker = replica;                 /* what replica.json says; `location` is a location of its own */
byte head = 1;                          /* of the source */
bool source_object[PLACES];
bool object[PLACES], checkpoint[PLACES];        /* of the replica */
byte transaction[PLACES];               /* of the replica: 1 is the source's, 2 its own; 0 if there is none */
byte own;                               /* the revision that a promotion committed */
byte sending;                           /* checkpoints that are on their way to the replica */
byte at, each;                          /* scratch of atomic steps */

/* Set `at` to the head that a reader of the replica finds; 0 if its log has a fault, or none. */
inline replica_head() {
    at = REVISIONS + 1;
    do
    :: at > 0 && !checkpoint[at] -> at--
    :: else -> break
    od;
    do
    :: at <= REVISIONS && transaction[at + 1] -> at++
    :: else -> break
    od
}

inline check() {
    d_step {
        skip;
        replica_head();
        assert(!at || transaction[at] == 2 || object[at]);      /* the replica's head is whole at every moment */
        assert(!at || transaction[at] == 2 || at <= head);      /* and is a true version of its source */
        assert(!own || sending || (transaction[own] == 2 && at == own));        /* a promoted one goes its own way */
        at = 0
    }
}

active proctype source() {
    source_object[1] = true;
    do
    :: head < REVISIONS ->
        /* code: catalog/rules/chunks.py:complete_chunks */
        atomic {
            source_object[head + 1] = true;
            head++;
            printf("source: commits revision %d\n", head)
        }
    :: head > 1 ->
        /* code: catalog/operations/garbage.py:execute_collection */
        atomic {
            each = 1;
            do
            :: each < head && !source_object[each] -> each++
            :: else -> break
            od;
            if
            :: each < head ->
                source_object[each] = false;
                printf("source: collects the file of revision %d\n", each)
            :: else
            fi;
            each = 0
        }
    :: head == REVISIONS -> break
    od
}

#ifdef NO_GUARD
#define GUARDED true
#else
#define GUARDED (marker == replica)     /* code: catalog/replication/objects.py:check */
#endif

proctype replicator(byte me) {
    byte wanted, last, next;
    bool first, mine;

plan:
    /* code: catalog/replication/log_plan.py:plan_log */
    atomic {
        if
        :: !GUARDED -> goto stopped
        :: else
        fi;
        wanted = head;
        last = REVISIONS + 1;
        do
        :: last > 0 && !transaction[last] -> last--
        :: else -> break
        od;
        if
        :: last >= wanted -> goto stopped
        :: else
        fi;
        first = (last == 0);
        next = last + 1;
        printf("replicator %d: plans to copy revisions %d to %d\n", me, next, wanted)
    };
#ifndef LOG_BEFORE_OBJECTS
    /* code: catalog/replication/objects.py:copy_object */
    atomic {
        if
        :: !GUARDED -> goto stopped
        :: GUARDED && !source_object[wanted] ->
            printf("replicator %d: misses the file of revision %d, and plans again\n", me, wanted);
            goto plan
        :: else ->
            object[wanted] = true;
            printf("replicator %d: copies the file of revision %d\n", me, wanted)
        fi
    };
#endif
#ifndef TRANSACTIONS_WITHOUT_CHECKPOINT
    if
    :: next < wanted || first ->
        atomic {
            if
            :: !GUARDED -> goto stopped
            :: else -> sending++
            fi
        };
        /* code: catalog/replication/replicate.py:_copy_checkpoint */
        atomic {
            mine = !checkpoint[wanted];
            checkpoint[wanted] = true;
            printf("replicator %d: creates the checkpoint of revision %d, unless it exists\n", me, wanted);
            check()
        };
        atomic {
            sending--;
            if
            :: !GUARDED && !mine -> goto stopped
            :: !GUARDED && mine ->
#ifdef KEEPS_LATE_CHECKPOINT
                printf("replicator %d: finds no replica any more\n", me);
#else
                checkpoint[wanted] = false;
                printf("replicator %d: finds no replica any more, and deletes the checkpoint again\n", me);
#endif
                check();
                goto stopped
            :: else
            fi
        }
    :: else
    fi;
#endif
    do
    :: next <= wanted ->
        atomic {
            if
            :: !GUARDED -> goto stopped
            :: else
            fi
        };
        /* code: catalog/replication/objects.py:create_exactly */
        atomic {
#ifdef OVERWRITES_TRANSACTIONS
            transaction[next] = 1;
            printf("replicator %d: writes revision %d\n", me, next);
            check();
#else
            if
            :: transaction[next] == 0 ->
                transaction[next] = 1;
                printf("replicator %d: creates revision %d\n", me, next);
                check()
            :: transaction[next] == 2 ->
                printf("replicator %d: is refused, as revision %d is another one\n", me, next);
                goto stopped
            :: transaction[next] == 1
            fi;
#endif
            next++
        }
    :: else -> break
    od;
#ifdef LOG_BEFORE_OBJECTS
    atomic {
        if
        :: source_object[wanted] && GUARDED ->
            object[wanted] = true;
            printf("replicator %d: copies the file of revision %d\n", me, wanted)
        :: else
        fi
    };
#endif
    goto plan;
stopped:
    skip
}

proctype promoter() {
    byte planned;

    /* code: catalog/replication/promote.py:plan_promotion */
    atomic {
        replica_head();
        planned = at;
        at = 0;
        each = 1;
        do
        :: each <= planned && transaction[each] -> each++
        :: else -> break
        od;
        if
        :: !planned || each <= planned ->
            each = 0;
            printf("promoter: is refused, as the last replication did not end\n");
            goto stopped
        :: else -> each = 0
        fi;
        printf("promoter: plans on revision %d\n", planned)
    };
    /* code: catalog/replication/promote.py:execute_promotion */
    atomic {
        marker = promoting;
        printf("promoter: marks the replica\n")
    };
#ifndef PROMOTES_AS_PLANNED
    atomic {
        replica_head();
        if
        :: at != planned ->
            at = 0;
            marker = replica;
            printf("promoter: is refused, as a replication changed the replica\n");
            goto stopped
        :: else -> at = 0
        fi
    };
#endif
    /* code: catalog/replication/promote.py:_end_missing_versions */
    atomic {
        if
        :: transaction[planned + 1] ->
            marker = replica;
            printf("promoter: is refused, as a replication changed the replica\n");
            goto stopped
        :: else ->
            transaction[planned + 1] = 2;
            own = planned + 1;
            printf("promoter: commits revision %d\n", own);
            check()
        fi
    };
    atomic {
        marker = location;
        printf("promoter: deletes the marker\n")
    };
stopped:
    skip
}

init {
    atomic {
        if
        :: REPLICATORS > 1 -> run replicator(2)
        :: else
        fi;
#ifdef PROMOTER
        run promoter();
#endif
        run replicator(1)
    }
}
