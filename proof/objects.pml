/* What commits mean for objects: files and receipts, seals, tags and holds, expiry, garbage collection with its grace
 * period, deleted rows, compaction and rollback.
 *
 * Words and rules are those of FORMAT.md, section 6; docs/protocol.md explains this model. A commit is two steps, as
 * `log.pml` justifies: a rule decides on the head, and the conditional create succeeds only if that still is the head.
 * The location has one chunk with one file at a time, one table, and one row that a tombstone may delete.
 *
 * Time is counted in parts of the grace period. An actor that the clock passes twice between two of its steps has
 * crashed: writers and collectors must not sleep longer than half of the grace period before one storage call.
 */
#define FILES 4
#define SEALS 4
#define GRACE 3
#define HALF 1                          /* half of GRACE, rounded down, in whole parts */
#ifndef TIME
#define TIME 5
#endif
#define ACTORS 8
#define PLACES 6

mtype = { absent, fresh, stale, dead };
mtype status[ACTORS] = absent;          /* of actors: absent until the first step; stale once the clock has moved */
byte now;

/* Files, each with its receipt. */
byte files;                             /* how many were written */
bool there[PLACES], known[PLACES];      /* the object exists; a transaction named it, and it was not purged */
byte opened[PLACES], base[PLACES], through[PLACES];
byte unneeded_at[PLACES];               /* when a commit left it unreferenced */
bool erased[PLACES];                    /* a compaction left out the row */
bool read_later[PLACES];                /* the source was read after the row was deleted (what must hold, not storage) */

/* The state at the head, folded from the log. */
byte head = 1;                          /* its revision */
byte live;                              /* the chunk's file; 0 if it is not completed */
byte exported, changed, rolled_back;    /* revisions: the export's, the chunk's last change, the last rollback */
byte data_revision = 1;
byte tombstone;                         /* the revision of the pending tombstone; 0 if there is none */
bool sealed;
byte seals;
byte seal_file[PLACES], seal_tombstone[PLACES];
bool expired[PLACES];
byte tag;                               /* the seal that the tag pins; 0 without a tag */
bool held;

bool row_deleted;                       /* a tombstone was committed, and no user asked for its rows again */
byte held_seal;                         /* the seal whose tag was put under hold, until it is released */
byte reads, rows_from[PLACES], newest_rows;      /* reads of the source: of each file's rows, and of the last export */
byte needs, mark;                       /* scratch of atomic steps */

#define ALIVE (status[me] != dead)

inline moves() { status[me] = fresh }

/* Set `needs` to the bits of the files that the head, retained revisions and pins have. */
inline needed() {
    needs = (live -> 1 << live : 0);
    mark = 1;
    do
    :: mark <= seals ->
        if
        :: !expired[mark] || tag == mark -> needs = needs | (1 << seal_file[mark])
        :: else
        fi;
        mark++
    :: else -> break
    od;
    mark = 0
}

/* Add the bits of files whose receipt a resumed run could adopt. */
inline adoptable() {
    mark = 1;
    do
    :: mark <= files && live == 0 ->
        if
        :: there[mark] && !known[mark] && base[mark] >= changed -> needs = needs | (1 << mark)
        :: else
        fi;
        mark++
    :: else -> break
    od;
    mark = 0
}

#define NEEDED(file) ((needs >> (file)) & 1)

/* What must hold after every step that commits or deletes. */
inline check() {
    d_step {
        skip;
        needed();
        mark = 1;
        do
        :: mark <= files ->
            assert(!NEEDED(mark) || there[mark]);       /* what a live version, pin or hold names exists */
            mark++
        :: else -> break
        od;
        assert(!held_seal || (held && tag == held_seal));       /* a held tag stays as it is */
        assert(!(row_deleted && live) || erased[live] || read_later[live]
            || (tombstone && through[live] < tombstone));       /* a deleted row never returns */
        mark = 0;
        needs = 0
    }
}

/* A commit: `left` are the files that were needed before. */
inline committed(before) {
    d_step {
        head++;
        needed();
        mark = 1;
        do
        :: mark <= files ->
            if
            :: ((before >> mark) & 1) && !NEEDED(mark) -> unneeded_at[mark] = now
            :: else
            fi;
            mark++
        :: else -> break
        od;
        mark = 0;
        needs = 0
    };
    check()
}

#ifdef RULE_NOT_ASKED_AGAIN
#define WINS true
#else
#define WINS (head == seen)
#endif

inline add_seal() {
    seals++;
    seal_file[seals] = live;
    seal_tombstone[seals] = tombstone;
    expired[seals] = false;
    sealed = true
}

inline write_file() {
    files++;
    mine = files;
    there[mine] = true;
    known[mine] = false;
    opened[mine] = now;
    base[mine] = planned;
    through[mine] = planned
}

/* Exports the chunk, or exports it again. */
proctype exporter(byte me) {
    byte planned, replaces, mine, seen, before;

    atomic {
        ALIVE && files < FILES ->
        moves();
        planned = head;
        replaces = live;
        printf("exporter %d: plans on revision %d\n", me, planned)
    };
    /* code: catalog/receipts.py:write_receipt */
    atomic {
        ALIVE && files < FILES ->
        moves();
        write_file();
        read_later[mine] = row_deleted;
        reads++;
        rows_from[mine] = reads;
        status[me] = absent;            /* it may export other chunks before it commits this one */
        printf("exporter %d: writes file %d and its receipt\n", me, mine)
    };
prepare:
    /* code: catalog/rules/chunks.py:complete_chunks */
    atomic {
        ALIVE ->
        moves();
        seen = head;
        if
        :: rolled_back > planned ->
            printf("exporter %d: is refused, as the location was rolled back\n", me);
            goto done
        :: else
        fi;
        if
        :: !replaces && live ->
            printf("exporter %d: passes over the chunk, which another writer completed\n", me);
            goto done
#ifndef REPLACES_BLINDLY
        :: replaces && exported > planned ->
            printf("exporter %d: is refused, as the chunk was exported after it opened the source\n", me);
            goto done
        :: replaces && live != replaces && exported <= planned ->
            printf("exporter %d: is refused, as the chunk has other files\n", me);
            goto done
#endif
        :: else
        fi;
        if
#ifndef NO_AGE_CHECK
        :: now - opened[mine] > HALF ->
            printf("exporter %d: is refused, as its file is old\n", me);
            goto done
#endif
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: !WINS -> goto prepare
        :: else
        fi;
        needed();
        before = needs;
        live = mine;
        known[mine] = true;
        sealed = false;
        exported = head + 1;
        changed = head + 1;
        data_revision = head + 1;
#ifdef THROUGH_AT_COMMIT
        through[mine] = head;
#endif
        printf("exporter %d: commits file %d\n", me, mine);
        assert(rows_from[mine] >= newest_rows); /* older rows never replace newer ones */
        newest_rows = rows_from[mine];
        committed(before);
        before = 0
    };
    /* code: catalog/rules/seal.py:seal */
    atomic {
        ALIVE && seals < SEALS && live && !sealed ->
        moves();
        needed();
        before = needs;
        add_seal();
        printf("exporter %d: seals file %d\n", me, live);
        committed(before);
        before = 0
    };
done:
    status[me] = absent
}

/* Adopts the receipt of a run that died. */
proctype resumer(byte me) {
    byte mine, seen, before;

    /* code: catalog/receipt_selection.py:adoptable_receipts */
    atomic {
        ALIVE && live == 0 ->
        needed();
        adoptable();
        needs = needs & ~(live -> 1 << live : 0);
        if
        :: NEEDED(1) && !known[1] -> mine = 1
        :: NEEDED(2) && !known[2] -> mine = 2
        fi;
        needs = 0;                      /* it may export other chunks before it commits this one */
        printf("resumer %d: finds the receipt of file %d\n", me, mine)
    };
prepare:
    /* code: catalog/rules/chunks.py:_check_adoptable */
    atomic {
        ALIVE ->
        moves();
        seen = head;
        if
        :: live ->
            printf("resumer %d: passes over the chunk, which another writer completed\n", me);
            goto done
#ifndef ADOPTS_WITHOUT_FENCE
        :: !live && changed > base[mine] ->
            printf("resumer %d: is refused, as the chunk or the location changed after the receipt's base\n", me);
            goto done
#endif
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: !WINS -> goto prepare
        :: else
        fi;
        needed();
        before = needs;
        live = mine;
        known[mine] = true;
        sealed = false;
        exported = head + 1;
        changed = head + 1;
        data_revision = head + 1;
        newest_rows = rows_from[mine];
        printf("resumer %d: adopts file %d\n", me, mine);
        committed(before);
        before = 0
    };
done:
    status[me] = absent
}

/* Writes the visible rows of the chunk into a new file. */
proctype compactor(byte me) {
    byte planned, replaces, mine, seen, before;

    atomic {
        ALIVE && files < FILES && live ->
        moves();
        planned = head;
        replaces = live;
        write_file();
        erased[mine] = erased[live] || (tombstone && through[live] < tombstone);
        read_later[mine] = read_later[live];
        rows_from[mine] = rows_from[live];
        printf("compactor %d: writes file %d from file %d\n", me, mine, replaces)
    };
prepare:
    /* code: catalog/operations/compact.py:compact_chunk */
    atomic {
        ALIVE ->
        moves();
        seen = head;
        if
        :: rolled_back > planned || live != replaces || now - opened[mine] > HALF ->
            printf("compactor %d: is refused, as the chunk has other files, or its own is old\n", me);
            goto done
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: !WINS -> goto prepare
        :: else
        fi;
        needed();
        before = needs;
        live = mine;
        known[mine] = true;
        changed = head + 1;
        data_revision = head + 1;
#ifdef COMPACTS_THROUGH_COMMIT
        through[mine] = head;
#endif
        if
        :: sealed && seals < SEALS -> add_seal()
        :: else -> sealed = false
        fi;
        printf("compactor %d: commits file %d\n", me, mine);
        assert(rows_from[mine] >= newest_rows); /* older rows never replace newer ones */
        committed(before);
        before = 0
    };
done:
    status[me] = absent
}

/* Deletes the row. */
proctype deleter(byte me) {
    byte planned, seen, before;

    atomic {
        ALIVE && live && !tombstone ->
        moves();
        planned = head;
        printf("deleter %d: plans on revision %d\n", me, planned)
    };
prepare:
    /* code: catalog/rules/seal.py:tombstone */
    atomic {
        ALIVE ->
        moves();
        seen = head;
        if
        :: rolled_back > planned ->
            printf("deleter %d: is refused, as the location was rolled back\n", me);
            goto done
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: !WINS -> goto prepare
        :: else
        fi;
        needed();
        before = needs;
        tombstone = head + 1;
        row_deleted = true;
        data_revision = head + 1;
        if
        :: sealed && seals < SEALS -> add_seal()
        :: else -> sealed = false
        fi;
        printf("deleter %d: deletes the row\n", me);
        committed(before);
        before = 0
    };
done:
    status[me] = absent
}

/* Tags the oldest seal; may hold the tag. */
proctype tagger(byte me) {
    byte seen, before;

prepare:
    /* code: catalog/pins/tags.py:create_tag */
    atomic {
        ALIVE && seals > 1 ->
        moves();
        seen = head;
        if
        :: expired[1] ->
            printf("tagger %d: is refused, as seal 1 has expired\n", me);
            goto done
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
#ifdef TAGS_AS_PLANNED
        :: false -> goto prepare
#else
        :: head != seen -> goto prepare
#endif
        :: else
        fi;
        needed();
        before = needs;
        tag = 1;
        printf("tagger %d: tags seal 1\n", me);
        assert(!expired[1]);            /* what has expired and is not pinned is never pinned again */
        committed(before);
        before = 0
    };
hold:
    /* code: catalog/pins/tags.py:hold_tag */
    atomic {
        ALIVE ->
        moves();
        seen = head;
        if
        :: !tag ->
            printf("tagger %d: is refused, as there is no tag to hold\n", me);
            goto done
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: head != seen -> goto hold
        :: else
        fi;
        needed();
        before = needs;
        held = true;
        held_seal = tag;
        printf("tagger %d: holds the tag\n", me);
        committed(before);
        before = 0
    };
done:
    status[me] = absent
}

/* Deletes the tag, whose time is over, and expires all seals but the newest. */
proctype expirer(byte me) {
    byte seen, before, last;

untag:
    /* code: catalog/rules/retention.py:delete_tags */
    atomic {
        ALIVE && seals > 1 ->
        moves();
        seen = head;
        if
        :: !tag -> goto expire
#ifndef IGNORES_HOLDS
        :: held -> goto expire
#endif
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
#ifdef IGNORES_HOLDS
        :: false -> goto untag
#else
        :: head != seen -> goto untag
#endif
        :: else
        fi;
        needed();
        before = needs;
        tag = 0;
        held = false;
        printf("expirer %d: deletes the tag\n", me);
        committed(before);
        before = 0
    };
expire:
    /* code: catalog/rules/retention.py:expire */
    atomic {
        ALIVE ->
        moves();
        seen = head
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: !WINS -> goto expire
        :: else
        fi;
        needed();
        before = needs;
        last = seals - 1;
        do
        :: last > 0 ->
            expired[last] = true;
            last--
        :: else -> break
        od;
        printf("expirer %d: expires all seals but seal %d\n", me, seals);
        committed(before);
        before = 0
    };
done:
    status[me] = absent
}

/* Goes back to the oldest seal, and does not accept that deleted rows come back. */
proctype reverter(byte me) {
    byte planned, seen, before;

    /* code: catalog/operations/rollback.py:plan_rollback */
    atomic {
        ALIVE && seals > 0 && seals < SEALS ->
        moves();
        planned = data_revision;
        printf("reverter %d: plans a rollback to seal 1\n", me)
    };
prepare:
    /* code: catalog/rules/rollback.py:rollback */
    atomic {
        ALIVE ->
        moves();
        seen = head;
        if
#ifndef ROLLS_BACK_TO_EXPIRED
        :: expired[1] && tag != 1 ->
            printf("reverter %d: is refused, as seal 1 has expired\n", me);
            goto done
#endif
        :: else
        fi;
        if
#ifndef UNDELETES
        :: row_deleted && !seal_tombstone[1] ->
            printf("reverter %d: is refused, as a deleted row would come back\n", me);
            goto done
#endif
        :: data_revision != planned ->
            printf("reverter %d: is refused, as data changed\n", me);
            goto done
        :: else
        fi
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: !WINS -> goto prepare
        :: else
        fi;
        if
        :: seals == SEALS -> goto done
        :: else
        fi;
        needed();
        before = needs;
        live = seal_file[1];
        tombstone = seal_tombstone[1];
        rolled_back = head + 1;
        changed = head + 1;
        data_revision = head + 1;
        newest_rows = rows_from[live];
        add_seal();
        printf("reverter %d: rolls back to seal 1\n", me);
        committed(before);
        before = 0
    };
done:
    status[me] = absent
}

/* Set `due` to the planned garbage that exists, is not in `kept`, and is older than the grace period at `limit`. */
inline scan_objects(due, kept) {
    d_step {
        skip;
        mark = 1;
        do
        :: mark <= files ->
            if
            :: !there[mark] || (kept >> mark) & 1 || opened[mark] + GRACE > limit -> due = due & ~(1 << mark)
#ifndef GRACE_SINCE_WRITTEN
            :: unneeded_at[mark] && unneeded_at[mark] + GRACE > limit -> due = due & ~(1 << mark)
#endif
            :: else
            fi;
            mark++
        :: else -> break
        od;
        due = due & ((1 << (files + 1)) - 2);
        mark = 0;
        needs = 0
    }
}

inline scan(due) {
    needed();
#ifndef IGNORES_RECEIPTS
    adoptable();
#endif
    scan_objects(due, needs)
}

proctype collector(byte me) {
    byte due, limit, seen, before, each;

    /* code: catalog/operations/garbage.py:plan_collection */
    atomic {
        ALIVE ->
        limit = now;
#ifdef COLLECTS_ON_OLD_STATE
        needed();
        adoptable();
        before = needs;
        needs = 0;
#else
        due = 62;
        scan(due);
        due != 0;
#endif
        printf("collector %d: lists garbage\n", me)
    };
    /* Then the user reads the plan. */
#ifdef COLLECTS_ON_OLD_STATE
    atomic {
        ALIVE && now >= GRACE ->
        moves();
        limit = now;
        due = 62;
        scan_objects(due, before);
        before = 0;
        printf("collector %d: lists the objects again, and not the head\n", me)
    };
#else
    /* code: catalog/operations/garbage.py:scan_head */
    atomic {
        ALIVE ->
        moves();
        limit = now;
        scan(due);
        printf("collector %d: reads the head again\n", me)
    };
purge:
    /* code: catalog/rules/seal.py:purge */
    atomic {
        ALIVE ->
        moves();
        seen = head;
        needed();
        if
        :: needs & due ->
            needs = 0;
            printf("collector %d: is refused, as a revision needs listed garbage\n", me);
            goto done
        :: else
        fi;
        needs = 0
    };
    atomic {
        ALIVE ->
        moves();
        if
        :: head != seen -> goto purge
        :: else
        fi;
        each = 1;
        do
        :: each <= files ->
            if
            :: (due >> each) & 1 && known[each] ->
                known[each] = false;
                base[each] = 0;         /* the chunk changed since: nobody adopts its receipt */
                before = 1
            :: else
            fi;
            each++
        :: else -> break
        od;
        each = 0;
        if
        :: before ->
            printf("collector %d: purges listed files\n", me);
            needed();
            before = needs;
            committed(before)
        :: else
        fi;
        before = 0
    };
    /* code: catalog/operations/garbage.py:execute_collection */
    atomic {
        ALIVE ->
        moves();
        scan(due);
        printf("collector %d: reads the head once more\n", me)
    };
#endif
    do
    :: due ->
        atomic {
            ALIVE ->
            moves();
            each = 1;
            do
            :: !((due >> each) & 1) -> each++
            :: else -> break
            od;
            there[each] = false;
            due = due & ~(1 << each);
            printf("collector %d: deletes file %d\n", me, each);
            each = 0;
            check()
        }
    :: else -> break
    od;
done:
    status[me] = absent
}

/* Reads a retained version; its file must be there until it is read. */
proctype reader(byte me) {
    byte version;

    /* code: catalog/state/versions.py:resolve_version */
    atomic {
        ALIVE && seals > 0 ->
        if
        :: !expired[1] -> version = 1
        :: seals > 1 && !expired[2] -> version = 2
        fi;
        moves();
        printf("reader %d: opens seal %d\n", me, version)
    };
    atomic {
        ALIVE ->
        moves();
        printf("reader %d: reads file %d\n", me, seal_file[version])
        assert(there[seal_file[version]]);      /* a reader finds what its version names */
    };
    status[me] = absent
}

proctype clock() {
    byte each;

    do
    :: now < TIME ->
        atomic {
            now++;
            each = 0;
            do
            :: each < ACTORS ->
                if
                :: status[each] == fresh -> status[each] = stale
                :: status[each] == stale ->
                    status[each] = dead;
                    printf("clock: actor %d has crashed\n", each)
                :: else
                fi;
                each++
            :: else -> break
            od;
            each = 0;
            printf("clock: it is %d\n", now)
        }
    :: else -> break
    od
}

init {
    atomic {
#ifdef EMPTY
        seals = 1;                      /* sealed before the chunk's window was added */
        sealed = true;
#ifdef RECEIPT
        files = 1;                      /* a run died after it wrote the chunk's receipt */
        there[1] = true;
        base[1] = 1;
        through[1] = 1;
        reads = 1;
        rows_from[1] = 1;
#endif
#else
        reads = 2;
        rows_from[1] = 1;
        rows_from[2] = 2;
        newest_rows = 2;
        files = 2;                      /* two sealed exports, the older one replaced */
        there[1] = true;
        there[2] = true;
        known[1] = true;
        known[2] = true;
        base[2] = 2;
        through[2] = 2;
        live = 2;
        head = 5;
        exported = 4;
        changed = 4;
        data_revision = 4;
        seals = 2;
        seal_file[1] = 1;
        seal_file[2] = 2;
        sealed = true;
#endif
        run clock();
#ifdef EXPORTERS
        run exporter(0);
#if EXPORTERS > 1
        run exporter(1);
#endif
#endif
#ifdef RESUMER
        run resumer(2);
#endif
#ifdef COMPACTOR
        run compactor(2);
#endif
#ifdef DELETER
        run deleter(3);
#endif
#ifdef TAGGER
        run tagger(4);
#endif
#ifdef EXPIRER
        run expirer(5);
#endif
#ifdef REVERTER
        run reverter(1);
#endif
#ifdef READER
        run reader(3);
#endif
#ifdef COLLECTOR
        run collector(6)
#endif
    }
}
