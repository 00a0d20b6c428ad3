--------------------------------- MODULE Trace ---------------------------------
(* Does the model allow what a real database did?                              *)
(*                                                                             *)
(* Record.tla is made from records of real runs: see tools/model/trace.py. It  *)
(* has many runs, each a sequence of steps. TLC begins with each of them, and  *)
(* takes its steps one after the other. A run comes to its end if each step is *)
(* one that Database.tla allows, and leads to a state that keeps the promises. *)
EXTENDS Database, Record, Sequences

CONSTANT Explains  \* go on when a promise is broken, so that TLC names it

VARIABLES run, at

Begin ==
    /\ job = <<>> /\ dead = <<>> /\ ended = <<>> /\ claims = <<>> /\ workers = <<>>
    /\ keys = {} /\ running = <<>> /\ used = {} /\ broken = {}
    /\ run \in 1..Len(Runs) /\ at = 1

\* A limit may park a job that was due; the model knows no limits.
Park(j) == /\ j \in Live
           /\ job' = [job EXCEPT ![j].parked = TRUE]
           /\ UNCHANGED <<dead, ended, claims, workers, keys, running, used, broken>>

\* What the database had afterwards is what the model says.
See(e) == /\ e.j \in Live
          /\ job[e.j].deliveries = e.deliveries /\ job[e.j].losses = e.losses
          /\ UNCHANGED database

Does(e) ==
    CASE e.op = "Enqueue"   -> Enqueue(e.j, e.key, e.okey, e.parked)
      [] e.op = "Redrive"   -> Redrive(e.j, e.parked)
      [] e.op = "Claim"     -> Claim(e.c, e.w, e.jobs)
      [] e.op = "Complete"  -> /\ Complete(e.w, e.c, e.j, e.d, {})
                               /\ e.kept = (keys' # keys)
      [] e.op = "Return"    -> Return(e.w, e.c, e.j, e.d, e.losses, {})
      [] e.op = "Rescue"    -> Rescue(e.w, e.c, e.j, e.d, e.losses, {})
      [] e.op = "Bury"      -> Bury(e.w, e.c, e.j, e.d, e.reason, e.holds, {})
      [] e.op = "Heed"      -> Heed(e.w, e.c, e.j, e.d, {})
      [] e.op = "Refused"   -> Refused(e.w, e.c, e.j, e.d)
      [] e.op = "GiveBack"  -> \E c \in Holders(e.j) : GiveBack(claims[c].worker, {e.j})
      [] e.op = "EndClaims" -> IF e.c \in DOMAIN claims THEN EndClaims({e.c}) ELSE UNCHANGED database
      [] e.op = "Cancel"    -> Cancel(e.j)
      [] e.op = "Wake"      -> Wake({e.j})
      [] e.op = "Park"      -> Park(e.j)
      [] e.op = "Forgive"   -> Forgive(e.j)
      [] e.op = "See"       -> See(e)
      [] e.op = "Dismiss"   -> Dismiss(e.j)
      [] e.op = "Reopen"    -> Reopen(<<e.j, e.redrives>>)
      [] e.op = "Purge"     -> Purge(<<e.j, e.redrives>>)
      [] e.op = "Forget"    -> Forget(e.key)
      [] e.op = "Register"  -> Register(e.w, e.state)
      [] e.op = "MarkLost"  -> e.silent /\ MarkLost(e.w)
      [] e.op = "Close"     -> Close(e.w) /\ UNCHANGED <<job, dead, ended, claims, keys, running,
                                                         used, broken>>
      [] e.op = "Leave"     -> Leave(e.w)
      [] OTHER              -> FALSE

Promises == Promise1 /\ Promise3 /\ Promise8 /\ InOrder
Length == Len(Runs[run])

Follow ==
    \/ at <= Length /\ Does(Runs[run][at]) /\ at' = at + 1 /\ run' = run /\ (Explains \/ Promises')
    \/ at = Length + 1 /\ PrintT(<<"allowed", run>>) /\ at' = at + 1 /\ UNCHANGED <<database, run>>
    \/ at > Length + 1 /\ UNCHANGED <<database, run, at>>

Spec == Begin /\ [][Follow]_<<database, run, at>>
==============================================================================
