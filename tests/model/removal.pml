/* How a ledger's file comes and goes, for spin: processes join, take memory, give it back, leave for good or die, and a
 * sweeper removes what ended. One d_step is one system call or one access to the file, as in shim/ledger/{slots,removal}.cc.
 *
 * A file is a number: `path` is the one that the path leads to, and who has another one open has one that was removed.
 * Each process wants all of the cap, so two that have it at once are one too many, whichever files they count in; the
 * driver keeps a dead process's memory for a while.
 *
 * THREE: three processes, and not two.
 * MUTATION: 0, or a defect that the check must find.
 *   1 who joins does not look whether the file is still the one at the path
 *   2 the sweeper does not ask the driver about the dead
 *   3 the sweeper does not take the lock
 *   4 the sweeper does not look whether the file is still the one at the path
 *   5 who leaves removes the file though it holds memory, which the driver has until the process is gone */
#ifndef MUTATION
#define MUTATION 0
#endif

#ifndef SWEEPS
#define SWEEPS 1
#endif

#define PROCESSES 3
#define FILES 5
#define NONE 255

byte path = NONE, made;
byte lock[FILES] = NONE;
/* By file and process. */
#define AT(f, p) ((f) * PROCESSES + (p))
bool alive[15];  /* the slot's lock */
bool marked[15]; /* the slot has an owner, maybe a dead one */
bool held[15];
bool in_driver[PROCESSES]; /* what the driver has given */
bool ended[PROCESSES];

#define ANY(a, f) (a[AT(f, 0)] || a[AT(f, 1)] || a[AT(f, 2)])
#define ANY_OTHER(a, f, p) (a[AT(f, (p + 1) % PROCESSES)] || a[AT(f, (p + 2) % PROCESSES)])

#define unlock() d_step { if :: lock[file] == process -> lock[file] = NONE :: else fi }

/* Zeroes what is dead and released by the driver; needs the lock. */
inline reap_one(p) {
  d_step {
    if
    :: marked[AT(file, p)] && !alive[AT(file, p)] && !in_driver[p] ->
      held[AT(file, p)] = false; marked[AT(file, p)] = false
    :: else
    fi
  }
}
inline reap() {
  reap_one(0); reap_one(1); reap_one(2)
}

proctype member(byte process) {
  byte file = NONE;
  bool granted, alone;
  /* Dying drops the locks, and the driver releases later. */
  {
    do
    :: d_step { path == NONE -> assert(made < FILES); path = made; made++ }
    :: d_step { path != NONE -> file = path }
       /* GrowLock opens the path again, and then waits. */
       if :: d_step { path != file -> file = NONE } :: path == file
         -> d_step { lock[file] == NONE -> lock[file] = process }
#if MUTATION != 1
         if :: d_step { path != file -> lock[file] = NONE; file = NONE } :: path == file fi;
#endif
         if :: file != NONE -> break :: else fi
       fi
    od;
    skip; /* spin lets no loop end right before a d_step */
    d_step { alive[AT(file, process)] = true }
    reap();
    d_step { marked[AT(file, process)] = true }
    unlock();

    /* Reserving: counted in first, then all others are counted. */
    d_step { held[AT(file, process)] = true }
    d_step {
      granted = !ANY_OTHER(held, file, process);
      if
      :: granted -> in_driver[process] = true; assert(in_driver[0] + in_driver[1] + in_driver[2] <= 1)
      :: else -> held[AT(file, process)] = false
      fi
    }
    if
    :: granted -> /* given back, driver first; or kept till the end */
      if
      :: d_step { in_driver[process] = false } d_step { held[AT(file, process)] = false }
      :: true
      fi
    :: else
    fi;

    /* leave_for_good() */
#if MUTATION == 5
    alone = true;
#else
    d_step { alone = !ANY(held, file) }
#endif
    if
    :: alone && path == file ->
      if
      :: d_step { lock[file] == NONE -> lock[file] = process }
        d_step { alone = !ANY_OTHER(alive, file, process) }
#if MUTATION != 5
        d_step { alone = alone && !ANY(held, file) }
#endif
        if
        :: alone && path == file -> d_step { path = NONE }
        :: else
        fi;
        unlock()
      :: lock[file] != NONE
      fi
    :: else
    fi;
    d_step { ended[process] = true }
  } unless { ended[process] };
  /* What the kernel does; a file is NONE where the process had not opened any. */
  d_step {
    ended[process] = true;
    if
    :: file != NONE ->
      alive[AT(file, process)] = false;
      if :: lock[file] == process -> lock[file] = NONE :: else fi
    :: else
    fi
  }
  d_step { in_driver[process] = false }
}

proctype killer() {
  if :: ended[0] = true :: ended[1] = true :: true fi
}

/* remove_ended(), SWEEPS times at most. The dead are those about whom the driver was asked. */
#define IS_SAME(p) (!marked[AT(file, p)] || was_marked[p])
proctype sweeper() {
  byte process = PROCESSES, file, sweeps;
  bool over, was_marked[PROCESSES];
  do
  :: sweeps < SWEEPS ->
    sweeps++;
    d_step { file = path }
    if
    :: file == NONE
    :: file != NONE ->
      d_step {
        over = !ANY(alive, file);
        was_marked[0] = marked[AT(file, 0)]; was_marked[1] = marked[AT(file, 1)]; was_marked[2] = marked[AT(file, 2)]
      }
#if MUTATION != 2
      d_step { over = over && !(marked[AT(file, 0)] && in_driver[0]) }
      d_step { over = over && !(marked[AT(file, 1)] && in_driver[1]) }
      d_step { over = over && !(marked[AT(file, 2)] && in_driver[2]) }
#endif
      if
      :: over ->
#if MUTATION == 3
        if
        :: true ->
#else
        if
        :: lock[file] != NONE
        :: d_step { lock[file] == NONE -> lock[file] = process }
#endif
#if MUTATION != 3
          d_step { over = !ANY(alive, file) && IS_SAME(0) && IS_SAME(1) && IS_SAME(2) }
#endif
#if MUTATION != 4
          d_step { over = over && path == file }
#endif
          if :: over -> d_step { path = NONE } :: else fi;
          unlock()
        fi
      :: else
      fi
    fi
  :: else -> break
  od
}

init {
  atomic {
    run member(0);
    run member(1);
#ifdef THREE
    run member(2);
#endif
    run killer();
    run sweeper()
  }
}
