-------------------------------- MODULE System --------------------------------
(* The callers of Database.tla, and everything that can go wrong between them. *)
(*                                                                             *)
(* A worker remembers what it claimed. It sends settlements, and a settlement  *)
(* may be executed late, more than once, or after the worker is dead: nothing  *)
(* is ever taken from the wire. A claim's answer may be lost. A worker may be  *)
(* paused, cut off, or killed, and Postgres may crash and lose claims that it  *)
(* had not written to the disk. Each such fault takes one from a budget.       *)
EXTENDS Database

CONSTANTS
    Jobs,       \* ids, from old to young
    Workers,    \* identities; a worker that starts again has a new one
    KeyOf,      \* id -> idempotency key, or None
    OrderOf,    \* id -> ordering key, or None
    Holding,    \* ordering keys that a dead letter holds
    Poison,     \* jobs that kill their process
    MaxLosses,  \* processes that a job may kill
    Faults,     \* how many faults
    Failures,   \* how many attempts fail
    Decisions,  \* how many decisions operators take
    Can         \* which faults and decisions

VARIABLES
    memory,   \* worker -> what it holds: [c, j, d, stage]
    wire,     \* settlements that were sent: [w, c, j, d, out]
    health,   \* worker -> "new", "up", "unsure", "silent" or "down"
    alone,    \* worker -> the job that has it to itself, or 0
    fresh,    \* claims that a crash would lose
    next,     \* the id of the next claim
    starts,   \* job -> how often a handler began it
    causes,   \* job -> how often something happened after which it may begin again
    kills,    \* job -> how many processes it killed
    since,    \* dead letters whose key has succeeded since they died
    left      \* [faults, failures, decisions] that are left

vars == <<database, memory, wire, health, alone, fresh, next, starts, causes, kills, since, left>>

Init ==
    /\ job = <<>> /\ dead = <<>> /\ ended = <<>> /\ claims = <<>> /\ workers = <<>>
    /\ keys = {} /\ running = <<>> /\ used = {} /\ broken = {}
    /\ memory = [w \in Workers |-> {}] /\ wire = {} /\ health = [w \in Workers |-> "new"]
    /\ alone = [w \in Workers |-> 0] /\ fresh = {} /\ next = 1
    /\ starts = [j \in Jobs |-> 0] /\ causes = starts /\ kills = starts /\ since = {}
    /\ left = [faults |-> Faults, failures |-> Failures, decisions |-> Decisions]

\* The first id that was never used; begin_epoch.sql leaves a wide gap instead.
NewId == Cardinality(used) + 1
Spend(what) == left[what] > 0 /\ left' = [left EXCEPT ![what] = @ - 1]
May(what) == what \in Can
Caused(S) == [j \in Jobs |-> causes[j] + IF j \in S THEN 1 ELSE 0]
HeldBy(w) == {j \in Live : \E c \in Holders(j) : claims[c].worker = w}
Recalls(w) == {m.j : m \in memory[w]}
\* Every commit but that of a claim waits for the disk, and takes the claims before it along.
Written == fresh' = {}

------------------------------------------------------------------------------
(* Producers *)

Produce(j) ==
    /\ \E parked \in IF OrderOf[j] = None THEN {FALSE} ELSE BOOLEAN :
        /\ IsHeld(OrderOf[j], j) => parked
        /\ Enqueue(j, KeyOf[j], OrderOf[j], parked)
    /\ \A i \in Jobs : i < j => Known(i) \/ KeyOf[i] # None
    /\ Written
    /\ UNCHANGED <<memory, wire, health, alone, next, starts, causes, kills, since, left>>

------------------------------------------------------------------------------
(* Workers *)

Appear(w) ==
    /\ health[w] = "new"
    /\ \A v \in Workers : health[v] # "new" => health[v] # "up" \/ May("two workers")
    /\ Register(w, "live")
    /\ health' = [health EXCEPT ![w] = "up"]
    /\ Written
    /\ UNCHANGED <<memory, wire, alone, next, starts, causes, kills, since, left>>

\* One exchange claims for several jobs. Its answer may be lost, and then the worker does not know
\* what it has: it claims no more under this identity. A worker may fall silent while its request is
\* on its way.
Take(w, S, isHeard) ==
    /\ health[w] = "up" \/ (health[w] = "silent" /\ isHeard)
    /\ Claim(next, w, S)
    /\ next' = next + 1
    /\ IF isHeard
       THEN /\ memory' = [memory EXCEPT ![w] = @ \cup
                    {[c |-> next, j |-> j, d |-> job[j].deliveries + 1, stage |-> "held"] : j \in S}]
            /\ UNCHANGED <<health, left>>
       ELSE /\ May("lose a reply") /\ Spend("faults")
            /\ health' = [health EXCEPT ![w] = "unsure"]
            /\ UNCHANGED memory
    /\ fresh' = fresh \cup {next}
    /\ UNCHANGED <<wire, alone, starts, causes, kills, since>>

\* A job that may have killed processes runs alone in its worker, and nothing starts beside it.
IsSuspect(j) == j \in Live /\ job[j].losses >= MaxLosses - 1
Start(w, m) ==
    /\ health[w] \in {"up", "unsure", "silent"}
    /\ m.stage = "held"
    /\ alone[w] = 0
    /\ IsSuspect(m.j) => \A o \in memory[w] : o.stage = "held"
    /\ alone' = [alone EXCEPT ![w] = IF IsSuspect(m.j) THEN m.j ELSE 0]
    /\ memory' = [memory EXCEPT ![w] = (@ \ {m}) \cup {[m EXCEPT !.stage = "started"]}]
    /\ starts' = [starts EXCEPT ![m.j] = @ + 1]
    /\ UNCHANGED <<database, wire, health, fresh, next, causes, kills, since, left>>

\* An attempt ends, and the worker sends how.
Finish(w, m, out) ==
    /\ health[w] \in {"up", "unsure", "silent"}
    /\ CASE out = "complete" -> m.stage = "started" /\ m.j \notin Poison /\ UNCHANGED left
         [] out \in {"retry", "dead"} -> m.stage = "started" /\ m.j \notin Poison /\ Spend("failures")
         [] out = "release" -> m.stage = "held" /\ May("release") /\ Spend("failures")
    /\ wire' = wire \cup {[w |-> w, c |-> m.c, j |-> m.j, d |-> m.d, out |-> out]}
    /\ memory' = [memory EXCEPT ![w] = @ \ {m}]
    /\ alone' = [alone EXCEPT ![w] = IF @ = m.j THEN 0 ELSE @]
    /\ UNCHANGED <<database, health, fresh, next, starts, causes, kills, since>>

\* The head of the ordering key wakes, or it is locked and does not.
Next(j) == IF job[j].okey = None THEN {}
           ELSE {i \in Live \ {j} : job[i].okey = job[j].okey /\ job[i].parked
                   /\ \A h \in Live \ {j} : job[h].okey = job[j].okey => i <= h
                   /\ ~ IsHeld(job[j].okey, i)}

\* The database executes a settlement. What was executed before may come again.
Deliver(s) ==
    /\ Fence(s.w, s.c, s.j, s.d)
    /\ \/ /\ s.out = "complete" /\ Complete(s.w, s.c, s.j, s.d, Next(s.j)) /\ UNCHANGED causes
          /\ since' = since \cup (IF job[s.j].key = None THEN {} ELSE {d[1] : d \in Open(job[s.j].key)})
       \/ /\ s.out \in {"retry", "release"} /\ Return(s.w, s.c, s.j, s.d, 0, {})
          /\ causes' = Caused({s.j}) /\ UNCHANGED since
       \/ /\ s.out = "dead" /\ causes' = Caused({s.j}) /\ UNCHANGED since
          /\ LET holds == job[s.j].okey \in Holding IN
             Bury(s.w, s.c, s.j, s.d, "failed", holds, IF holds THEN {} ELSE Next(s.j))
    /\ Written
    /\ UNCHANGED <<memory, wire, health, alone, next, starts, kills, left>>

\* An identity that claims no more gives back what it does not know of, and leaves when it is done.
\* It sends a settlement until it hears that it was executed, so only those before that are its own.
Unanswered(w) == {s \in wire : /\ Is("retire: unanswered")
                               /\ s.w = w /\ Fence(s.w, s.c, s.j, s.d)}
Retire(w) ==
    /\ health[w] = "unsure"
    /\ LET unknown == HeldBy(w) \ (Recalls(w) \cup {s.j : s \in Unanswered(w)}) IN
       /\ unknown # {}
       /\ GiveBack(w, unknown)
       /\ causes' = Caused(unknown)
    /\ Written
    /\ UNCHANGED <<memory, wire, health, alone, next, starts, kills, since, left>>
Goodbye(w) ==
    /\ health[w] = "unsure" /\ memory[w] = {} /\ HeldBy(w) = {}
    /\ Leave(w)
    /\ health' = [health EXCEPT ![w] = "down"]
    /\ Written
    /\ UNCHANGED <<memory, wire, alone, next, starts, causes, kills, since, left>>

Sweep(w) ==
    /\ LET over == {c \in DOMAIN claims : claims[c].worker = w /\ claims[c].jobs \cap Live = {}} IN
       over # {} /\ EndClaims(over)
    /\ Written
    /\ UNCHANGED <<memory, wire, health, alone, next, starts, causes, kills, since, left>>

------------------------------------------------------------------------------
(* Lost workers *)

Lose(w) ==
    /\ health[w] \in {"silent", "down"}
    /\ MarkLost(w)
    /\ Written
    /\ UNCHANGED <<memory, wire, health, alone, next, starts, causes, kills, since, left>>

\* A rescue cannot know which jobs of the worker had begun, so each of them is a suspect. It buries a
\* job only if it ran alone.
TakeBack(w, j) ==
    /\ w \in DOMAIN workers /\ workers[w] = "lost" /\ j \in HeldBy(w)
    /\ LET c == CHOOSE c \in Holders(j) : claims[c].worker = w
           d == job[j].deliveries + 1 IN
       IF alone[w] = j
       THEN Bury(w, c, j, d, "killed_worker", FALSE, Next(j))
       ELSE Rescue(w, c, j, d, job[j].losses + 1, {})
    /\ causes' = Caused({j})
    /\ Written
    /\ UNCHANGED <<memory, wire, health, alone, next, starts, kills, since, left>>
\* Nobody is left to rescue: every claim of the worker is gone.
Forgotten(w) ==
    /\ w \in DOMAIN workers /\ workers[w] = "lost"
    /\ Leave(w)
    /\ Written
    /\ UNCHANGED <<memory, wire, health, alone, next, starts, causes, kills, since, left>>

\* The worker is there again. It learns that it was lost, stops, and its jobs are forgiven.
Return2(w) ==
    /\ health[w] = "silent"
    /\ IF w \in DOMAIN workers /\ workers[w] = "live"
       THEN health' = [health EXCEPT ![w] = "up"] /\ UNCHANGED <<database, memory>>
       ELSE /\ health' = [health EXCEPT ![w] = "down"]
            /\ memory' = [memory EXCEPT ![w] = {}]
            /\ LET j == {m.j : m \in memory[w]} \cap Live IN
               IF j # {} /\ May("forgive") THEN \E i \in j : Forgive(i) ELSE UNCHANGED database
    /\ UNCHANGED <<wire, alone, fresh, next, starts, causes, kills, since, left>>

------------------------------------------------------------------------------
(* Faults *)

Silence(w) ==  \* SIGSTOP, or a cut network
    /\ May("pause") /\ health[w] = "up" /\ Spend("faults")
    /\ health' = [health EXCEPT ![w] = "silent"]
    /\ UNCHANGED <<database, memory, wire, alone, fresh, next, starts, causes, kills, since>>
Kill(w) ==
    /\ May("kill") /\ health[w] \in {"up", "unsure"} /\ Spend("faults")
    /\ health' = [health EXCEPT ![w] = "down"]
    /\ memory' = [memory EXCEPT ![w] = {}]
    /\ UNCHANGED <<database, wire, alone, fresh, next, starts, causes, kills, since>>
\* A job kills its process. Nothing that a budget limits: the promise is the limit.
Suicide(w, m) ==
    /\ m.j \in Poison /\ m.stage = "started" /\ health[w] \in {"up", "unsure", "silent"}
    /\ health' = [health EXCEPT ![w] = "down"]
    /\ memory' = [memory EXCEPT ![w] = {}]
    /\ kills' = [kills EXCEPT ![m.j] = @ + 1]
    /\ UNCHANGED <<database, wire, alone, fresh, next, starts, causes, since, left>>
\* Postgres crashes. Claims whose commit had not reached the disk are gone. The epoch (begin_epoch.sql)
\* makes sure that their ids are never used again.
Crash ==
    /\ May("crash") /\ Spend("faults")
    /\ LET lost == UNION {claims[c].jobs : c \in fresh \cap DOMAIN claims} IN
       /\ claims' = Without(claims, fresh)
       /\ running' = Freed(lost)
       /\ causes' = Caused(lost)
       /\ next' = IF Is("epoch") \/ fresh = {} THEN NewId
                  ELSE CHOOSE c \in fresh : \A o \in fresh : c <= o
    /\ fresh' = {}
    /\ UNCHANGED <<job, dead, ended, workers, keys, used, broken,
                   memory, wire, health, alone, starts, kills, since>>

------------------------------------------------------------------------------
(* Operators, campaigns and chores *)

Rest == UNCHANGED <<memory, wire, health, alone, next, starts, kills, since>>

\* A step of a campaign redrives what it planned; each of its jobs is one Redrive.
Again(j) == /\ May("redrive") /\ Spend("decisions") /\ Written
            /\ \E parked \in IF OrderOf[j] = None THEN {FALSE} ELSE BOOLEAN : Redrive(j, parked)
            /\ Rest /\ UNCHANGED causes
GiveUp(j) == May("dismiss") /\ Spend("decisions") /\ Dismiss(j) /\ Written /\ Rest /\ UNCHANGED causes
ThinkAgain(d) == May("dismiss") /\ Spend("decisions") /\ Reopen(d) /\ Written /\ Rest /\ UNCHANGED causes
PurgeIt(d) == May("purge") /\ Spend("decisions") /\ Purge(d) /\ Written /\ Rest /\ UNCHANGED causes
CancelIt(j) == May("cancel") /\ Spend("decisions") /\ Cancel(j) /\ Written /\ Rest /\ UNCHANGED causes
ForgetIt(k) == May("forget") /\ Forget(k) /\ Written /\ Rest /\ UNCHANGED <<causes, left>>
Unpark(o) ==
    LET heads == {j \in Live : job[j].okey = o /\ job[j].parked /\ ~ IsHeld(o, j)
                     /\ \A i \in Live : job[i].okey = o => j <= i} IN
    heads # {} /\ Wake(heads) /\ Written /\ Rest /\ UNCHANGED <<causes, left>>

------------------------------------------------------------------------------

\* What one claim may list.
Batches == {S \in SUBSET Live : Cardinality(S) \in 1..(IF May("batches") THEN 2 ELSE 1)}
Outs == {"complete", "retry", "dead", "release"}
Progress ==
    \/ \E w \in Workers :
        \/ Appear(w) \/ Retire(w) \/ Goodbye(w) \/ Sweep(w) \/ Lose(w) \/ Forgotten(w) \/ Return2(w)
        \/ \E S \in Batches : Take(w, S, TRUE)
        \/ \E m \in memory[w] : Start(w, m) \/ Suicide(w, m) \/ \E out \in Outs : Finish(w, m, out)
        \/ \E j \in Live : TakeBack(w, j)
    \/ \E s \in wire : Deliver(s)
    \/ \E o \in {OrderOf[j] : j \in Jobs} \ {None} : Unpark(o)
Disturbance ==
    \/ Crash
    \/ \E w \in Workers : \/ Silence(w) \/ Kill(w)
                          \/ \E S \in Batches : Take(w, S, FALSE)
Decision ==
    \/ \E j \in Jobs : Produce(j) \/ Again(j) \/ GiveUp(j) \/ CancelIt(j)
    \/ \E d \in DOMAIN dead : ThinkAgain(d) \/ PurgeIt(d)
    \/ \E k \in keys : ForgetIt(k)

Step == Progress \/ Disturbance \/ Decision
Spec == Init /\ [][Step]_vars /\ WF_vars(Progress)

------------------------------------------------------------------------------
(* The rest of the promises *)

\* 3. A job that a worker has stays alive until this worker has settled it, as long as its claim lists it.
Kept == \A w \in Workers : health[w] = "up" => \A m \in memory[w] :
            m.c \in DOMAIN claims /\ m.j \in claims[m.c].jobs => m.j \in Live

\* 4. A handler begins once, and again only after something that the promise names.
Promise4 == \A j \in Jobs : starts[j] <= 1 + causes[j]

\* 6. A job kills a limited number of processes, and only a job that ran alone is blamed.
Promise6 == /\ \A j \in Jobs : kills[j] <= MaxLosses
            /\ \A d \in DOMAIN dead : dead[d].reason = "killed_worker" => starts[d[1]] >= MaxLosses

\* 9. A dead letter whose key has succeeded since never runs to an end again.
Promise9 == \A j \in since : j \in DOMAIN ended => ended[j] # "completed"

\* 2 and 7. A job does not stay alive for ever, and a lost worker does not keep its jobs.
Promise2 == \A j \in Jobs : (j \in Live) ~> (j \notin Live)
Promise7 == \A w \in Workers : (health[w] = "down") ~> (HeldBy(w) = {})

Symmetry == Permutations(Workers)
==============================================================================
