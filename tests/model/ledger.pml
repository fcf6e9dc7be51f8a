/* The ledger's protocol for spin: reserving within a lease, growing it with and without the lock,
 * taking back unspent leases, releasing, dying between any two steps, joining and reaping.
 *
 * One d_step is one access to shared memory or one system call, as in shim/ledger/ledger.cc. A thread that
 * finds the lock taken may give up on it at once, which covers a holder that is stopped for ever.
 * `own` is what the processes themselves know they have; no code of the protocol reads it.
 *
 * JOINED: both processes have joined before. THREADS: process 0 has a second thread, which makes
 * ROUNDS2 reservations. MUTATION: 0, or a defect that the check must find.
 *   1 what was looked up before counting oneself in is relied upon
 *   2 the threads of a process do not take turns, so that one may raise the lease by what another
 *     has counted in and takes back
 *   3 a slot is reaped without asking the kernel whether its owner lives
 *   4 a refused attempt stays counted
 *   5 the lock outlives its holder */
#ifndef MUTATION
#define MUTATION 0
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef KILLS
#define KILLS 1
#endif

#ifndef LOOKS
#define LOOKS 2 /* tries of one reservation */
#endif

#define CAP 3
#define PROCESSES 2
#define SLOTS 3
#define NOBODY 255

byte held[SLOTS], lease[SLOTS];
bool marked[SLOTS];
byte slot_lock[SLOTS] = NOBODY; /* the process whose life the kernel ties the slot to */
byte grow_lock = NOBODY;
bool turn[SLOTS]; /* a thread of the slot's process is growing */

bool dead[PROCESSES];
byte own[PROCESSES];
byte running; /* threads that have not ended */

#define LARGER(a, b) ((a) > (b) -> (a) : (b))
#define SMALLER(a, b) ((a) < (b) -> (a) : (b))
#define CLAIM(s) LARGER(held[s], lease[s])
inline check() {
  assert(own[0] + own[1] <= CAP);
  assert(lease[0] + lease[1] + lease[2] <= CAP);
}

/* What all slots but one's own take away from the cap, read one after the other. */
#define COUNT(s) (marked[s] && me != s -> CLAIM(s) : 0)
inline count_others() {
  others = COUNT(0);
  others = others + COUNT(1);
  others = others + COUNT(2)
}

/* try_grant(): sets `granted`. */
inline try_grant() {
  granted = false;
  spare = 0;
  count_others();
  d_step {
    if
    :: others + held[me] + n <= CAP ->
      spare = ((locked && held[me] + n > lease[me]) -> SMALLER(CAP - others - held[me] - n, 1) : 0);
      held[me] = held[me] + n + spare; counted = true
    :: else -> counted = false
    fi
  }
  if
  :: counted ->
    count_others();
    d_step {
      mine = CLAIM(me);
#if MUTATION == 1
      granted = true;
#else
      granted = (others + mine <= CAP);
#endif
      if :: granted -> own[process] = own[process] + n; check() :: else fi
    }
    if
    :: !granted ->
      d_step { lease[me] = 0 }
      count_others();
      d_step {
        mine = CLAIM(me);
        granted = (others + mine <= CAP);
        if :: granted -> own[process] = own[process] + n; check() :: else fi
      }
    :: else
    fi;
    d_step {
      if
      :: !granted ->
#if MUTATION != 4
        held[me] = held[me] - n - spare
#else
        skip
#endif
      :: granted && locked ->
        lease[me] = LARGER(lease[me], SMALLER(held[me], mine));
        held[me] = held[me] - spare
      :: else
      fi;
      check()
    }
  :: else
  fi
}

inline take_from(t) {
  d_step {
    if
    :: marked[t] && t != me && lease[t] > held[t] && !taken ->
      lease[t] = lease[t] - SMALLER(lease[t] - held[t], n);
      taken = true
    :: else
    fi
  }
}

/* take_back_unspent(): sets `taken`. */
inline take_back() {
  taken = false;
  take_from(0);
  take_from(1);
  take_from(2)
}

inline reap_slot(t) {
#if MUTATION == 3
  d_step { ready_to_wipe = (marked[t] && me != t) }
#else
  d_step { ready_to_wipe = (marked[t] && slot_lock[t] == NOBODY) }
#endif
  if :: ready_to_wipe ->
    d_step { held[t] = 0; lease[t] = 0 } d_step { marked[t] = false; reaped = true }
  :: else
  fi
}

inline reap() {
  reap_slot(0);
  reap_slot(1);
  reap_slot(2)
}

inline unlock() {
  d_step { if :: locked -> grow_lock = NOBODY; locked = false :: else fi }
}

/* grow(): sets `granted`. */
inline grow() {
  looks = 0;
  do
  :: looks < LOOKS ->
    looks++;
#if defined(THREADS) && MUTATION != 2
    d_step { !turn[me] -> turn[me] = true }
#endif
    if
    :: d_step { grow_lock == NOBODY -> grow_lock = process; locked = true }
    :: grow_lock != NOBODY -> locked = false
    fi;
    try_grant();
    if
    :: !granted ->
      take_back();
      if :: taken -> try_grant() :: else fi
    :: else
    fi;
    reaped = false;
    if :: !granted && locked -> reap() :: else fi;
    unlock();
#if defined(THREADS) && MUTATION != 2
    d_step { turn[me] = false }
#endif
    if :: granted || !reaped -> break :: else fi
  :: else -> break
  od;
  skip /* spin lets no loop end right before a d_step */
}

inline join() {
  d_step { grow_lock == NOBODY -> grow_lock = process; locked = true }
  reap();
#define IS_FREE(s) (!marked[s] && slot_lock[s] == NOBODY)
  d_step {
    me = (IS_FREE(0) -> 0 : (IS_FREE(1) -> 1 : 2));
    assert(IS_FREE(me));
    slot_lock[me] = process
  }
  d_step { held[me] = 0; lease[me] = 0 }
  d_step { marked[me] = true }
  unlock()
}

/* What the kernel does when the process dies. Turns are taken with threads alone, which is searched
 * without deaths. */
inline drop_locks(p) {
  slot_lock[0] = (slot_lock[0] == p -> NOBODY : slot_lock[0]);
  slot_lock[1] = (slot_lock[1] == p -> NOBODY : slot_lock[1]);
  slot_lock[2] = (slot_lock[2] == p -> NOBODY : slot_lock[2]);
#if MUTATION != 5
  grow_lock = (grow_lock == p -> NOBODY : grow_lock)
#endif
}

proctype thread(byte process; byte most) {
  byte me = NOBODY, n, others, mine, spare, rounds, looks;
  bool locked, granted, counted, taken, reaped, ready_to_wipe;
  {
#ifdef JOINED
    me = process;
#else
    join();
#endif
    do
    :: rounds < most ->
      rounds++;
      if :: n = 1 :: n = 2 fi;
      d_step { /* reserve within the lease */
        granted = false;
        if
        :: held[me] + n <= lease[me] ->
          held[me] = held[me] + n; own[process] = own[process] + n; granted = true;
          check()
        :: else
        fi
      }
      if :: !granted -> grow() :: else fi;
      d_step { /* fewer states: these are not read again */
        others = 0; mine = 0; spare = 0; looks = 0;
        counted = false; taken = false; reaped = false; ready_to_wipe = false }
      if
      :: granted -> d_step { held[me] = held[me] - n; own[process] = own[process] - n }
      :: true /* kept */
      fi; d_step { n = 0; granted = false }
    :: else -> break
    od
  } unless {
    dead[process]
  }
  running--
}

/* Kills processes at any moment; the kernel drops their locks in that moment. */
proctype killer() {
  byte kills, p;
  do
  :: kills < KILLS ->
    if :: p = 0 :: p = 1 fi;
    d_step {
      kills++;
      dead[p] = true;
      own[p] = 0;
      drop_locks(p)
    }
  :: break
  od;
  running--
}

/* When all is quiet: nobody waits, nothing is lost and nothing forgotten. */
proctype judge() {
  byte me = NOBODY;
  bool ready_to_wipe, reaped;
  running == 0;
  assert(grow_lock == NOBODY);
  reap();
#define HELD(s) (marked[s] -> held[s] : 0)
  assert(HELD(0) + HELD(1) + HELD(2) == own[0] + own[1])
}

init {
  atomic {
#ifdef JOINED
    marked[0] = true; slot_lock[0] = 0;
    marked[1] = true; slot_lock[1] = 1;
#endif
#ifdef THREADS
    running = 3;
    run thread(0, ROUNDS2);
#else
    running = 2;
#endif
    run thread(0, ROUNDS);
    run thread(1, ROUNDS);
#if KILLS > 0
    running++;
    run killer();
#endif
    run judge()
  }
}
