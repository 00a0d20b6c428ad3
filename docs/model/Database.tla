------------------------------- MODULE Database -------------------------------
(* What Postgres holds, and the transactions that change it.                   *)
(*                                                                             *)
(* Each action below is one transaction of sql/functions. An action says what  *)
(* must hold before it (its guards) and what holds after it: x' is the value   *)
(* of x after the step. Nothing here knows who calls. A caller may call        *)
(* anything, with any arguments: a stale claim, an old delivery, twice.        *)
(*                                                                             *)
(* System.tla adds the callers: workers, their memory, lost replies, crashes.  *)
(* Trace.tla compares these actions with what a real database did.             *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANT Removed    \* names of guards that are left out, to see that they matter

VARIABLES
    job,      \* live jobs. id -> [key, okey, deliveries, redrives, losses, parked]
    dead,     \* dead letters. <<id, redrives>> -> [state, key, okey, holds, reason, deliveries]
    ended,    \* what became of jobs that left both tables. id -> outcome
    claims,   \* claims. id -> [worker, jobs]
    workers,  \* rows of workers. id -> "live", "closed" or "lost"
    keys,     \* idempotency keys whose success is remembered
    running,  \* ordering key -> the job of it that a worker has
    used,     \* every claim id that was ever given out
    broken    \* names of promises that a step broke

database == <<job, dead, ended, claims, workers, keys, running, used, broken>>

None == ""

Guard(name, condition) == name \in Removed \/ condition
Is(name) == name \notin Removed

------------------------------------------------------------------------------
(* Words *)

Without(f, S) == [x \in DOMAIN f \ S |-> f[x]]
With(f, x, value) == [y \in DOMAIN f \cup {x} |-> IF y = x THEN value ELSE f[y]]
Rename(f, S, new(_)) == [x \in DOMAIN f |-> IF x \in S THEN new(f[x]) ELSE f[x]]

Live == DOMAIN job
Holders(j) == {c \in DOMAIN claims : j \in claims[c].jobs}
IsClaimed(j) == Holders(j) # {}
Open(k) == {d \in DOMAIN dead : dead[d].key = k /\ dead[d].state \in {"open", "dismissed"}}
OpenOf(j) == {d \in DOMAIN dead : d[1] = j /\ dead[d].state = "open"}
Redriven(j) == {d \in DOMAIN dead : d[1] = j /\ dead[d].state = "redriven"}
HasLive(k) == \E j \in Live : job[j].key = k
Known(j) == j \in Live \/ j \in DOMAIN ended \/ \E d \in DOMAIN dead : d[1] = j

\* A dead letter may hold its ordering key: younger jobs wait until somebody decides about it.
IsHeld(o, j) == \E d \in DOMAIN dead :
    dead[d].okey = o /\ dead[d].holds /\ dead[d].state = "open" /\ d[1] < j

\* complete.sql and settle.sql, "Two conditions prove the ownership of a job".
OwnsClaim(w, c) == /\ Guard("fence: claim", c \in DOMAIN claims)
                   /\ Guard("fence: worker", c \in DOMAIN claims => claims[c].worker = w)
Fence(w, c, j, d) == /\ j \in Live
                     /\ OwnsClaim(w, c)
                     /\ Guard("fence: delivery", job[j].deliveries = d - 1)

\* Who may settle, by promise 3 and not by the two conditions of the SQL: the claim that lists the job.
IsOwner(w, c, j, d) == /\ Holders(j) = {c}
                       /\ claims[c].worker = w
                       /\ job[j].deliveries = d - 1

Unlisted(S) == [c \in DOMAIN claims |-> [claims[c] EXCEPT !.jobs = @ \ S]]
Freed(S) == Without(running, {o \in DOMAIN running : running[o] \in S})
Woken(jobs, S) == Rename(jobs, S, LAMBDA r : [r EXCEPT !.parked = FALSE])

------------------------------------------------------------------------------
(* Enqueue: enqueue.sql. A key that is taken, or has succeeded, adds nothing. *)

\* A job behind an older one of its ordering key is parked. The older one may end in the same
\* moment, so a parked job need not have anything before it: see Wake.
Enqueue(j, k, o, parked) ==
    /\ ~ Known(j)
    /\ k # None => /\ Guard("enqueue: one live job", ~ HasLive(k))
                   /\ Guard("enqueue: success", k \notin keys)
    /\ parked => o # None
    /\ job' = With(job, j, [key |-> k, okey |-> o, deliveries |-> 0, redrives |-> 0,
                            losses |-> 0, parked |-> parked])
    /\ UNCHANGED <<dead, ended, claims, workers, keys, running, used, broken>>

------------------------------------------------------------------------------
(* Workers: register.sql, mark_lost.sql, retire.sql, and the end of rescue.sql *)

Register(w, state) ==
    /\ w \notin DOMAIN workers
    \* A row appears as lost if claims were found that belong to no row.
    /\ state = "live" \/ (state = "lost" /\ \E c \in DOMAIN claims : claims[c].worker = w)
    /\ workers' = With(workers, w, state)
    /\ UNCHANGED <<job, dead, ended, claims, keys, running, used, broken>>

MarkLost(w) ==
    /\ w \in DOMAIN workers /\ workers[w] # "lost"
    /\ workers' = [workers EXCEPT ![w] = "lost"]
    /\ UNCHANGED <<job, dead, ended, claims, keys, running, used, broken>>

Close(w) ==
    /\ w \in DOMAIN workers
    /\ workers' = [workers EXCEPT ![w] = IF @ = "live" THEN "closed" ELSE @]

\* Give back jobs that a worker holds and does not know of, or does not want.
GiveBack(w, S) ==
    /\ \A j \in S : j \in Live /\ \E c \in Holders(j) : claims[c].worker = w
    /\ job' = Rename(job, S, LAMBDA r : [r EXCEPT !.deliveries =
                                         IF Is("retire: delivery") THEN @ + 1 ELSE @,
                                         !.parked = FALSE])
    /\ claims' = Unlisted(S)
    /\ running' = Freed(S)
    /\ UNCHANGED <<dead, ended, workers, keys, used, broken>>

\* A claim ends when none of its jobs lives. Its worker says so, or a rescue looks.
EndClaims(C) ==
    /\ \A c \in C : /\ c \in DOMAIN claims
                    /\ Guard("end claim: no live job", claims[c].jobs \cap Live = {})
    /\ claims' = Without(claims, C)
    /\ UNCHANGED <<job, dead, ended, workers, keys, running, used, broken>>

\* The row of a worker goes when it has no claim left.
Leave(w) ==
    /\ w \in DOMAIN workers
    /\ Guard("leave: no claim", \A c \in DOMAIN claims : claims[c].worker # w)
    /\ workers' = Without(workers, {w})
    /\ UNCHANGED <<job, dead, ended, claims, keys, running, used, broken>>

------------------------------------------------------------------------------
(* Claim: claim.sql. The rows of the jobs do not change. A claim lists them. *)

MayRun(j) ==
    /\ j \in Live
    /\ ~ job[j].parked
    /\ Guard("claim: once", ~ IsClaimed(j))
    /\ job[j].okey # None =>
        /\ Guard("claim: one of a key", job[j].okey \notin DOMAIN running)
        /\ Guard("claim: held", ~ IsHeld(job[j].okey, j))
        /\ Guard("claim: oldest", ~ \E i \in Live :
                                      i < j /\ job[i].okey = job[j].okey /\ ~ job[i].parked)

Claim(c, w, S) ==
    /\ S # {}
    /\ c \notin DOMAIN claims
    /\ Guard("claim: new id", c \notin used)
    /\ Guard("claim: live worker", w \in DOMAIN workers /\ workers[w] = "live")
    /\ \A j \in S : MayRun(j)
    /\ \A i, j \in S : i # j => job[i].okey = None \/ job[i].okey # job[j].okey
    /\ claims' = With(claims, c, [worker |-> w, jobs |-> S])
    /\ running' = [o \in DOMAIN running \cup ({job[j].okey : j \in S} \ {None}) |->
                    IF \E j \in S : job[j].okey = o THEN CHOOSE j \in S : job[j].okey = o
                    ELSE running[o]]
    /\ used' = used \cup {c}
    /\ UNCHANGED <<job, dead, ended, workers, keys, broken>>

------------------------------------------------------------------------------
(* Settle: complete.sql and settle.sql. Only the owner of a claim changes anything. *)

Broke(w, c, j, d) == broken \cup (IF IsOwner(w, c, j, d) THEN {} ELSE {"3: a stale settlement counted"})

\* Success. The key is remembered in the same transaction.
Complete(w, c, j, d, woken) ==
    /\ Fence(w, c, j, d)
    /\ woken \subseteq Live \ {j}
    /\ job' = Woken(Without(job, {j}), woken)
    /\ ended' = With(ended, j, "completed")
    /\ keys' = IF job[j].key # None /\ Is("complete: key") THEN keys \cup {job[j].key} ELSE keys
    /\ dead' = Rename(dead, Redriven(j), LAMBDA r : [r EXCEPT !.state = "resolved"])
    /\ running' = Freed({j})
    /\ broken' = Broke(w, c, j, d)
    /\ UNCHANGED <<claims, workers, used>>

\* Back to wait: retried, released, or taken from a lost worker.
Return(w, c, j, d, losses, woken) ==
    /\ Fence(w, c, j, d)
    /\ losses <= job[j].losses + 1
    /\ woken \subseteq Live
    /\ job' = Woken([job EXCEPT ![j] = [@ EXCEPT
                  !.deliveries = IF Is("settle: delivery") THEN d ELSE @,
                  !.losses = losses, !.parked = FALSE]], woken)
    /\ claims' = IF Is("settle: unlist") THEN Unlisted({j}) ELSE claims
    /\ running' = Freed({j})
    /\ broken' = Broke(w, c, j, d)
    /\ UNCHANGED <<dead, ended, workers, keys, used>>

\* Only from a worker whose heartbeat stopped.
Rescue(w, c, j, d, losses, woken) ==
    /\ Guard("rescue: lost worker", w \in DOMAIN workers /\ workers[w] = "lost")
    /\ Return(w, c, j, d, losses, woken)

\* To the dead letters: one statement deletes the job and inserts the dead letter.
Bury(w, c, j, d, reason, holds, woken) ==
    /\ Fence(w, c, j, d)
    /\ woken \subseteq Live \ {j}
    /\ job' = Woken(IF Is("bury: delete") THEN Without(job, {j}) ELSE job, woken)
    /\ dead' = IF Is("bury: insert")
               THEN With(dead, <<j, job[j].redrives>>,
                         [state |-> "open", key |-> job[j].key, okey |-> job[j].okey, holds |-> holds,
                          reason |-> reason, deliveries |-> d])
               ELSE dead
    /\ claims' = Unlisted({j})
    /\ running' = Freed({j})
    /\ broken' = Broke(w, c, j, d)
    /\ UNCHANGED <<ended, workers, keys, used>>

\* A handler gave up a job that an operator had cancelled.
Heed(w, c, j, d, woken) ==
    /\ Fence(w, c, j, d)
    /\ woken \subseteq Live \ {j}
    /\ job' = Woken(Without(job, {j}), woken)
    /\ ended' = With(ended, j, "cancelled")
    /\ dead' = Rename(dead, Redriven(j), LAMBDA r : [r EXCEPT !.state = "resolved"])
    /\ claims' = Unlisted({j})
    /\ running' = Freed({j})
    /\ broken' = Broke(w, c, j, d)
    /\ UNCHANGED <<workers, keys, used>>

\* A settlement that the fence refuses changes nothing.
Refused(w, c, j, d) ==
    /\ ~ Fence(w, c, j, d)
    /\ UNCHANGED database

------------------------------------------------------------------------------
(* Operators and chores *)

\* cancel.sql: a job that waits ends at once.
Cancel(j) ==
    /\ j \in Live
    /\ Guard("cancel: not claimed", ~ IsClaimed(j))
    /\ job' = Without(job, {j})
    /\ ended' = With(ended, j, "cancelled")
    /\ dead' = Rename(dead, Redriven(j), LAMBDA r : [r EXCEPT !.state = "resolved"])
    /\ UNCHANGED <<claims, workers, keys, running, used, broken>>

\* wake_keys.sql and unpark.sql: the next of an ordering key. A claim looks again, so this is a hint.
Wake(S) ==
    /\ S # {} /\ S \subseteq Live
    /\ job' = Woken(job, S)
    /\ UNCHANGED <<dead, ended, claims, workers, keys, running, used, broken>>

\* redrive.sql, also called by each step of a campaign, and by forgive.sql.
Redrive(j, parked) ==
    \E d \in OpenOf(j) :
        /\ dead[d].key # None => /\ Guard("redrive: success", dead[d].key \notin keys)
                                 /\ Guard("redrive: conflict", ~ HasLive(dead[d].key))
        /\ parked => dead[d].okey # None
        /\ job' = With(job, j, [key |-> dead[d].key, okey |-> dead[d].okey,
                                deliveries |-> IF Is("redrive: delivery") THEN dead[d].deliveries ELSE 0,
                                redrives |-> d[2] + 1, losses |-> 0, parked |-> parked])
        /\ dead' = IF Is("redrive: mark") THEN [dead EXCEPT ![d].state = "redriven"] ELSE dead
        /\ UNCHANGED <<ended, claims, workers, keys, running, used, broken>>

\* dismiss.sql and reopen.sql.
Dismiss(j) ==
    \E d \in OpenOf(j) :
        /\ dead' = [dead EXCEPT ![d].state = "dismissed"]
        /\ ended' = With(ended, j, "dismissed")
        /\ UNCHANGED <<job, claims, workers, keys, running, used, broken>>
Reopen(d) ==
    /\ d \in DOMAIN dead /\ dead[d].state = "dismissed"
    /\ dead' = [dead EXCEPT ![d].state = "open"]
    /\ ended' = Without(ended, {d[1]})
    /\ UNCHANGED <<job, claims, workers, keys, running, used, broken>>

\* purge.sql: a dead letter that is over, or an open one if an operator says so. Never one whose
\* redriven job lives.
Purge(d) ==
    /\ d \in DOMAIN dead
    /\ Guard("purge: redriven", dead[d].state # "redriven" \/ d[1] \notin Live)
    /\ dead' = Without(dead, {d})
    /\ ended' = IF dead[d].state = "open" THEN With(ended, d[1], "purged") ELSE ended
    /\ UNCHANGED <<job, claims, workers, keys, running, used, broken>>

\* forget_completions.sql.
Forget(k) ==
    /\ k \in keys
    /\ Guard("forget: dead letter", Open(k) = {})
    /\ keys' = keys \ {k}
    /\ UNCHANGED <<job, dead, ended, claims, workers, running, used, broken>>

\* forgive.sql, for a job that lives. One that died goes back by Redrive.
Forgive(j) ==
    /\ j \in Live
    /\ job' = [job EXCEPT ![j].losses = IF @ > 0 THEN @ - 1 ELSE 0]
    /\ UNCHANGED <<dead, ended, claims, workers, keys, running, used, broken>>

------------------------------------------------------------------------------
(* The promises of docs/guarantees.md that a state of the database shows *)

\* 1. A key has one live job at most, and none once its success is remembered.
Promise1 == \A i, j \in Live : job[i].key # None =>
                /\ (job[i].key = job[j].key => i = j)
                /\ job[i].key \notin keys

\* 2 and 8. A job is in exactly one place.
Places(j) == Cardinality({p \in {"jobs", "dead letters", "ended"} :
                 \/ p = "jobs" /\ j \in Live
                 \/ p = "dead letters" /\ OpenOf(j) # {}
                 \/ p = "ended" /\ j \in DOMAIN ended})
Promise8 == \A j \in Live \cup DOMAIN ended \cup {d[1] : d \in DOMAIN dead} : Places(j) = 1

\* 3. At most one valid claim, and no settlement of anybody else counted.
Promise3 == /\ \A j \in Live : Cardinality(Holders(j)) <= 1
            /\ broken = {}

\* Each live claim belongs to a worker that somebody watches. Otherwise its jobs would wait for ever.
Watched == \A c \in DOMAIN claims : claims[c].jobs \cap Live # {} => claims[c].worker \in DOMAIN workers

\* Jobs of an ordering key run one at a time.
InOrder == \A i, j \in Live : i # j /\ job[i].okey # None /\ job[i].okey = job[j].okey
                                => ~ (IsClaimed(i) /\ IsClaimed(j))

\* A redriven job keeps the dead letter that it came from.
Origin == \A j \in Live : job[j].redrives > 0 =>
              \E d \in Redriven(j) : d[2] = job[j].redrives - 1

------------------------------------------------------------------------------
(* The promises that a step shows *)

Ordered(c) == {j \in claims'[c].jobs : job[j].okey # None}
NewClaims == DOMAIN claims' \ DOMAIN claims

\* A claim takes the oldest job of an ordering key. A parked job waits for its turn.
Oldest == [][\A c \in NewClaims : \A j \in Ordered(c) : \A i \in Live :
                i < j /\ job[i].okey = job[j].okey => job[i].parked]_claims

\* A claim takes no job whose ordering key is held by an older dead letter.
HeldBack == [][\A c \in NewClaims : \A j \in Ordered(c) : \A d \in DOMAIN dead :
                ~ (dead[d].okey = job[j].okey /\ dead[d].holds /\ dead[d].state = "open" /\ d[1] < j)]_claims
==============================================================================
