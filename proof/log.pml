/* The log: conditional create, replies that get lost, checkpoints, pruning, writers that slept, listings that lag.
 *
 * Words and rules are those of FORMAT.md, section 6; docs/protocol.md explains this model. A transaction is a number,
 * unique for each that was created. Revision 1 exists at the start, and every writer has opened the location there.
 * A crash is a process that takes no further step, so each prefix of a run is one with crashes.
 */
#ifndef REVISIONS
#define REVISIONS 6                     /* highest revision; an array's place 0 is not used */
#endif
#ifndef BUSY
#define BUSY 4                          /* commits of the first writer; the others have one each */
#endif
#ifndef WRITERS
#define WRITERS 3
#endif
#ifndef LOST_REPLIES
#define LOST_REPLIES 1
#endif
#ifdef READER
#define GRACE true
#else
#define GRACE false                     /* pruning deletes at once: all are slow */
#endif
#define PLACES (REVISIONS + 2)
#define MOST (REVISIONS + 6)            /* transactions that are ever created */

byte transaction[PLACES];               /* by revision: the object's content; 0 if there is none */
byte checkpoint[PLACES];                /* by revision: the transaction that it was computed from; 0 if there is none */
bool old[PLACES];                       /* by revision: whether its objects are older than the grace period */
byte previous[MOST], operation[MOST];   /* by transaction: its predecessor, and the operation that it commits */
byte created = 1;                       /* the newest transaction */
byte truth, at, each, void_ones;   /* scratch of atomic steps */
byte acknowledged[PLACES];              /* by revision: the transaction whose writer was told that it counts */
byte newest_acknowledged = 1;
bool reading;                           /* a reader is at work: it does not sleep as long as the grace period */
bool pruning;                           /* a pruning has begun and not ended */
byte lost_replies = LOST_REPLIES;

/* What the log's objects give, read at once: `truth` is the head's transaction, `at` its revision. */
inline head() {
    at = REVISIONS;
    do
    :: at > 1 && !checkpoint[at] -> at--
    :: else -> break
    od;
    truth = (at > 1 -> checkpoint[at] : transaction[1]);
    do
    :: at < REVISIONS && transaction[at + 1] && previous[transaction[at + 1]] == truth ->
        at++;
        truth = transaction[at]
    :: else -> break
    od
}

/* Walk `truth` down from the head to a revision. */
inline state_at(revision) {
    head();
    assert(at >= revision);
    do
    :: at > revision ->
        truth = previous[truth];
        at--
    :: else -> break
    od
}

/* What must hold at every moment; stated after each step that changes the log. */
inline check_log() {
    d_step {
    each = 1;
    do
    :: each <= REVISIONS ->
        if
        :: acknowledged[each] ->
            state_at(each);
            assert(truth == acknowledged[each])     /* an acknowledged commit is in every later state */
        :: else
        fi;
        each++
    :: else -> break
    od;
    /* After a pruning that ended, no transaction of a writer that died before it took it back looks like damage. */
    head();
    void_ones = 0;
    do
    :: at > 1 ->
        if
        :: transaction[at] && transaction[at] != truth -> void_ones++
        :: else
        fi;
        if
        :: operation[truth] == operation[previous[truth]] -> assert(false)   /* no operation is committed twice */
        :: else
        fi;
        truth = previous[truth];
        at--
    :: else -> break
    od;
    /* code: catalog/log/store.py:start */
    assert(pruning || void_ones != 1 || !transaction[2] || !transaction[3] || previous[transaction[3]] == transaction[2]);
    void_ones = 0;
    each = 0;
    truth = 0;
    at = 0
    }
}

#define MINE (me + 1)

#define CREATED (transaction[revision + 1] != 0)

/* A failed create and the read of what won are one step: the first changes nothing. */
proctype writer(byte me; byte commits) {
    byte revision = 1, state = 1, mine;
    bool followed;                      /* it has read transactions of others since its last commit */

#ifdef OPENS_LATER
    if
    :: me == 0
    :: me > 0 ->
        /* code: catalog/log/replay.py:read_state */
        d_step {
            skip;
            head();
            revision = at;
            state = truth;
            at = 0;
            truth = 0;
            printf("writer %d: opens the location at revision %d\n", MINE, revision)
        }
    fi;
#endif
    do
    :: commits > 0 && revision < REVISIONS && created < MOST - 1 ->
prepare:
        /* code: catalog/log/store.py:_create */
        /* code: catalog/catalog.py:refresh */
        atomic {
            if
#ifdef NO_CONDITIONAL_CREATE
            :: revision < REVISIONS && created < MOST - 1 ->
#else
            :: revision < REVISIONS && created < MOST - 1 && !CREATED ->
#endif
                created++;
                mine = created;
                previous[mine] = state;
                operation[mine] = me * 8 + commits;
                transaction[revision + 1] = mine;
                old[revision + 1] = false;
                if
                :: printf("writer %d: creates transaction %d as revision %d\n", MINE, mine, revision + 1)
                :: lost_replies > 0 ->
                    lost_replies--;
                    printf("writer %d: creates transaction %d as revision %d; the reply is lost\n", MINE, mine, revision + 1);
                    goto read_back
                fi
            :: revision < REVISIONS && CREATED && previous[transaction[revision + 1]] == state ->
                revision++;
                state = transaction[revision];
                followed = true;
                printf("writer %d: finds revision %d taken, and reads it\n", MINE, revision);
                goto prepare
            :: revision < REVISIONS && CREATED && previous[transaction[revision + 1]] != state ->
                printf("writer %d: finds a revision %d that does not follow, and stops\n", MINE, revision + 1);
                goto end_done
#ifdef LOST_REPLY_IS_WIN
            :: revision < REVISIONS && CREATED && lost_replies > 0 ->
                lost_replies--;
                acknowledged[revision + 1] = MOST;
                printf("writer %d: finds revision %d taken; the reply is lost, and it reports the revision as committed\n", MINE, revision + 1);
                check_log()
#endif
            :: revision == REVISIONS || (created == MOST - 1 && !CREATED) -> goto end_done
            fi
        };
        goto check;
read_back:
        /* code: catalog/log/store.py:_read_back */
        atomic {
            if
#ifdef LOST_REPLY_IS_LOSS
            :: true ->
                mine = 0;
                printf("writer %d: takes the lost reply for a lost race\n", MINE);
                goto prepare
#else
            :: transaction[revision + 1] == mine -> printf("writer %d: reads its own transaction back\n", MINE)
            :: transaction[revision + 1] != mine ->
                mine = 0;
                printf("writer %d: does not read its own transaction back\n", MINE);
                goto prepare
#endif
            fi
        };
check:
        /* code: catalog/log/store.py:_check_follows */
        /* code: catalog/log/store.py:_is_passed */
        /* code: catalog/catalog.py:commit */
        atomic {
#ifndef NO_PREDECESSOR_CHECK
            if
            :: transaction[revision] != state && !checkpoint[revision] -> goto take_back
            :: else
            fi;
#ifdef PREDECESSOR_ALONE
            if
            :: revision == 1 ->
#elif defined(BELIEVES_LATE_CHECKPOINT)
            if
            :: revision == 1 || followed ->
#else
            if
            :: revision == 1 || followed || transaction[revision] != state ->
#endif
                truth = mine;
                at = revision + 1;
                do
                :: at < REVISIONS && transaction[at + 1] && previous[transaction[at + 1]] == truth ->
                    at++;
                    truth = transaction[at]
                :: else -> break
                od;
                at++;
                do
                :: at <= REVISIONS && !transaction[at] && !checkpoint[at] -> at++
                :: else -> break
                od;
                truth = at;
                at = 0;
                if
                :: truth <= REVISIONS ->
                    truth = 0;
                    goto take_back
                :: else -> truth = 0
                fi
            :: else
            fi;
#endif
            revision++;
            state = mine;
            mine = 0;
            followed = false;
            acknowledged[revision] = state;
            if
            :: revision > newest_acknowledged -> newest_acknowledged = revision
            :: else
            fi;
            printf("writer %d: reports revision %d as committed\n", MINE, revision);
            check_log();
            commits--
        };
        if
        :: true
        :: !checkpoint[revision] ->
            /* code: catalog/log/checkpoints.py:write_checkpoint */
            atomic {
                if
                :: !checkpoint[revision] && revision > 1 ->
                    checkpoint[revision] = state;
                    printf("writer %d: writes the checkpoint of revision %d\n", MINE, revision);
                    check_log()
                :: else
                fi
            }
#ifdef CHECKPOINT_BEFORE_TRANSACTION
        :: revision < REVISIONS && !checkpoint[revision + 1] && created < MOST - 1 && commits > 0 ->
            atomic {
                created++;
                previous[created] = state;
                operation[created] = me * 8 + commits;
                checkpoint[revision + 1] = created;
                printf("writer %d: writes the checkpoint of revision %d before its transaction\n", MINE, revision + 1);
                check_log()
            }
#endif
        fi
    :: else -> break
    od;
    goto end_done;
take_back:
    atomic {
        transaction[revision + 1] = 0;
        printf("writer %d: finds that the log went on without revision %d, deletes it, and fails\n", MINE, revision + 1);
        check_log()
    };
end_done:
    skip
}

/* Deletes the oldest part of the log. It can be interrupted anywhere, because a crash is a step that never comes. */
proctype pruner() {
    byte kept, newest, next;

    /* code: catalog/operations/maintain_log.py:plan_pruning */
    atomic {
        newest = REVISIONS;
        do
        :: newest > 0 && !checkpoint[newest] -> newest--
        :: else -> break
        od;
        newest > 1;
        kept = newest - 1;
        do
        :: kept > 0 && !checkpoint[kept] -> kept--
        :: else -> break
        od;
#ifdef PRUNE_REVISION_2_ALONE
        kept > 2;
#else
        kept > 3 && (old[kept] || !GRACE);     /* no listing lags behind the checkpoint that it relies on */
                                        /* revision 2 alone is not pruned: a later revision 2 would look like it */
#endif
        pruning = true;
        printf("pruner: keeps the log from the checkpoint of revision %d\n", kept)
    };
#ifdef PRUNE_DESCENDING
    next = kept - 1;
#else
    next = 2;
#endif
    do
    :: next > 1 && next < kept ->
        /* code: catalog/operations/maintain_log.py:execute_pruning */
        atomic {
            if
            :: !transaction[next] && !checkpoint[next]
            :: (transaction[next] || checkpoint[next]) && (old[next] || !GRACE) ->
                transaction[next] = 0;
                checkpoint[next] = 0;
                printf("pruner: deletes revision %d\n", next);
                check_log()
            :: (transaction[next] || checkpoint[next]) && !old[next] && GRACE -> break
            fi
#ifdef PRUNE_DESCENDING
            ;
            next--
#else
            ;
            next++
#endif
        }
    :: else -> break
    od;
    pruning = false
}

/* Time passes: everything that exists becomes older than the grace period. Readers do not sleep that long. */
proctype clock() {
    atomic {
        !reading;
        at = 1;
        do
        :: at <= REVISIONS ->
            old[at] = (transaction[at] != 0 || checkpoint[at] != 0);
            at++
        :: else -> break
        od;
        at = 0;
        printf("clock: the grace period passes\n")
    }
}

/* A reader, whose listing shows what is older than the grace period, and of the rest what it likes. */
proctype reader() {
    byte known, last, revision, state, listed, listed_checkpoint, before;
    byte tries = 2;

again:
    atomic {
        !reading || revision > 0;
        reading = true;
        before = newest_acknowledged;
        revision = 0;
        state = 0;
        /* code: catalog/log/store.py:list_log */
        last = REVISIONS;
        do
        :: last > 1 && !(transaction[last] && old[last]) -> last--      /* a listing may omit what is new */
        :: last == 1 || transaction[last] -> break
        od;
        listed = last;
        last = REVISIONS;
        do
        :: last > 1 && !(checkpoint[last] && old[last]) -> last--
        :: last == 1 || checkpoint[last] -> break
        od;
        listed_checkpoint = last;
        last = 0;
        printf("reader: lists the log, up to revision %d\n", listed)
    };
    /* code: catalog/log/replay.py:_newest_checkpoint */
    atomic {
        if
        :: listed_checkpoint <= 1 ->
            revision = 1;
            state = transaction[1]
        :: listed_checkpoint > 1 && checkpoint[listed_checkpoint] ->
            revision = listed_checkpoint;
            state = checkpoint[listed_checkpoint];
            printf("reader: reads the checkpoint of revision %d\n", revision)
        :: listed_checkpoint > 1 && !checkpoint[listed_checkpoint] -> goto retry
        fi
    };
    do
    ::
        /* code: catalog/log/replay.py:_replay */
        atomic {
            if
#ifdef STOP_AT_LISTING
            :: revision >= listed -> break
#endif
            :: revision < REVISIONS && transaction[revision + 1] && previous[transaction[revision + 1]] == state ->
                revision++;
                state = transaction[revision];
                printf("reader: reads revision %d\n", revision)
            :: revision < REVISIONS && transaction[revision + 1] && previous[transaction[revision + 1]] != state ->
                printf("reader: refuses revision %d, which does not follow\n", revision + 1);
                goto end_read
            :: revision < listed && !transaction[revision + 1] -> goto retry
            :: revision == REVISIONS || (revision >= listed && !transaction[revision + 1]) -> break
            fi
        }
    od;
    atomic {
        printf("reader: takes revision %d for the head\n", revision);
        assert(revision >= before);     /* what was acknowledged before it began is in its state */
        known = state;
        state_at(revision);
        assert(truth == known);         /* a revision has one state */
        truth = 0;
        at = 0;
        known = 0
    };
    goto end_read;
retry:
    if
    :: tries > 0 ->
        tries--;
        goto again
    :: else
    fi;
end_read:
    reading = false
}

init {
    atomic {
        transaction[1] = 1;
        operation[1] = 0;
        acknowledged[1] = 1;
        run writer(0, BUSY);
        run writer(1, 1);
        if
        :: WRITERS > 2 -> run writer(2, 1)
        :: else
        fi;
    #ifdef READER
        run clock();
        run reader();
#endif
        run pruner()
    }
}
