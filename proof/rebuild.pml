/* A log that lost transactions is rebuilt, while a writer sleeps that opened it before the loss.
 *
 * Words and rules are those of FORMAT.md, section 6 (Rebuilt logs); docs/protocol.md explains this model. The log had
 * revisions 1 to OLD; the last two may be lost, and so may the checkpoint and the files of the pin.
 */
#define OLD 4
#define PLACES (OLD + 4)

bool transaction[PLACES];               /* as they were written in the log that was lost */
bool fence[PLACES];
byte checkpoint;                        /* the revision of a whole checkpoint; 0 without one */
byte pin;                               /* the revision of a pin whose object is whole; 0 without one */
bool pin_has_files, lost;
byte late;                              /* what the writer that slept committed */
byte rebuilt;                           /* the revision of the rebuild; 0 until then */
byte base;                              /* the revision whose state it begins with */
byte each;                              /* scratch of atomic steps */

/* Each revision up to the base has the commit of the writer that slept, if that counts. */
inline check() {
    assert(!late || !rebuilt || (base >= late && transaction[late]))        /* an acknowledged commit is in the state */
}

active proctype loss() {
    atomic {
        each = 1;
        do
        :: each <= OLD ->
            transaction[each] = true;
            each++
        :: else -> break
        od;
        each = 0;
        if
        :: checkpoint = 3
        :: checkpoint = 0
        fi;
        if
        :: pin = 4;
            pin_has_files = true
        :: pin = 4
        :: pin = 0
        fi;
        if
        :: transaction[3] = false;
            printf("loss: revision 3 is lost\n")
        :: transaction[4] = false;
            printf("loss: revision 4 is lost\n")
        :: transaction[3] = false;
            transaction[4] = false;
            printf("loss: revisions 3 and 4 are lost\n")
        fi;
        lost = true;
        printf("loss: a checkpoint of revision %d and a pin of revision %d are left\n", checkpoint, pin)
    }
}

active proctype rebuilder() {
    bool free[PLACES];
    byte next = 2;
    byte found;

    /* code: catalog/rebuild/base.py:find_base */
    atomic {
        lost && !late ->
        found = 1;
        do
        :: found < OLD && transaction[found + 1] -> found++
        :: else -> break
        od;
        if
        :: checkpoint > found ->
            found = checkpoint;
            do
            :: found < OLD && transaction[found + 1] -> found++
            :: else -> break
            od
        :: else
        fi;
#ifdef BASE_WITHOUT_FILES
        if
        :: pin > found -> found = pin
#else
        if
        :: pin > found && pin_has_files -> found = pin
#endif
        :: else
        fi;
        printf("rebuilder: takes revision %d for the base\n", found);
        assert(found != pin || pin_has_files || found == checkpoint || transaction[found]);  /* it is proved whole */
        each = 2;
        do
        :: each <= OLD ->               /* where a writer could still commit */
            free[each] = !transaction[each] && (transaction[each - 1] || checkpoint == each - 1);
            each++
        :: else -> break
        od;
        each = 0
    };
#ifndef NO_FENCE
    do
    :: next <= OLD ->
        /* code: catalog/rebuild/rebuild.py:write_log */
        atomic {
            if
            :: free[next] && transaction[next] ->
                printf("rebuilder: is refused, as another writer committed revision %d\n", next);
                goto done
            :: free[next] && !transaction[next] ->
                fence[next] = true;
                printf("rebuilder: writes a fence at revision %d\n", next)
#ifdef FIRST_FENCE_ALONE
                ;
                next = OLD
#endif
            :: !free[next]
            fi;
            next++
        }
    :: else -> break
    od;
#endif
    /* code: catalog/rebuild/rebuild.py:first_transaction */
    atomic {
        base = found;
        rebuilt = OLD + 1;
        printf("rebuilder: writes revision %d, which begins with revision %d\n", rebuilt, base);
        check()
    };
done:
    skip
}

active proctype writer() {
    byte revision;                      /* the head when it opened the location; it read no later one */

    /* code: catalog/log/store.py:_create */
    atomic {
        lost ->
        if
        :: revision = 2
        :: revision = 3
        fi;
        if
        :: transaction[revision + 1] || fence[revision + 1] ->
            printf("writer: finds revision %d taken\n", revision + 1);
            goto done
        :: else ->
            transaction[revision + 1] = true;
            printf("writer: creates revision %d\n", revision + 1)
        fi
    };
    /* code: catalog/log/store.py:_check_follows */
    atomic {
        if
        :: !transaction[revision] && checkpoint != revision ->
            transaction[revision + 1] = false;
            printf("writer: finds no revision %d, deletes revision %d again, and fails\n", revision, revision + 1);
            goto done
        :: else
        fi;
        late = revision + 1;
        printf("writer: reports revision %d as committed\n", late);
        check()
    };
done:
    skip
}
