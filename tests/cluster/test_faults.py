"""What goes wrong in a cluster: nodes drained, pods killed, memory at an end."""

import subprocess

import pytest

from tests.cluster.kubernetes import Release, eventually, run

pytestmark = pytest.mark.slow


def test_a_drained_node_loses_nothing_and_burns_no_attempt(fleet: Release) -> None:
    """The pods' own drain, one after the other as the PodDisruptionBudget has it, under load."""
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    old = set(fleet.workers())
    node = fleet.pods("worker")[0]["spec"]["nodeName"]
    # Four that are longer than the drain: given back, and not charged for it.
    long = fleet.enqueue("shop.work", 4, '{"seconds": 40}')
    eventually("they run", lambda: len(fleet.ledger(long, "start")) == 4)
    jobs = long + fleet.enqueue("shop.work", 300, '{"seconds": 0.4}')

    selector = f"app.kubernetes.io/instance={fleet.name},redrive/pool=main"
    command = (
        "kubectl",
        "drain",
        node,
        "--pod-selector",
        selector,
        "--delete-emptydir-data",
        "--ignore-daemonsets",
    )
    with subprocess.Popen(
        (*command, "--timeout", "180s"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as drain:
        try:
            eventually("the first eviction", lambda: old - set(fleet.workers()))
        finally:
            run("kubectl", "uncordon", node)  # the only node, perhaps: the next ones need it
        said, _ = drain.communicate(timeout=200)

    assert drain.returncode == 0, said
    ends = fleet.wait_for_ends(jobs)
    eventually("new workers", lambda: len(fleet.workers()) == 2)
    assert old.isdisjoint(fleet.workers()), said
    assert [row for row in ends if row[0] in long and row[2] > 1], (
        "nothing was given back: nothing was tried here"
    )
    assert [row for row in ends if row[1] != 1] == [], "an attempt was burned"
    assert sorted(row[0] for row in ends) == sorted(jobs), "lost, or ended twice"
    assert fleet.dead_letters("--kind", "shop.work") == []


def test_a_pod_killed_by_force_gives_its_jobs_up_within_the_ttl(fleet: Release) -> None:
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    jobs = fleet.enqueue("shop.work", 8, '{"seconds": 15}')
    eventually("all of them run", lambda: len(fleet.ledger(jobs, "start")) == 8)
    victim = fleet.workers()[0]
    held = [
        int(row[0])
        for row in fleet.sql(f"select job from ledger where phase = 'start' and pod = '{victim}'")
        if int(row[0]) in jobs
    ]
    assert held

    [[killed_at]] = fleet.sql("select clock_timestamp()")
    fleet.kubectl("delete", "pod", victim, "--force", "--grace-period", "0")

    ends = fleet.wait_for_ends(jobs)
    assert {row[0] for row in ends} == set(jobs)
    # An attempt that starts again has to find a slot: two workers have eight, of which four are
    # busy.
    [[waited]] = fleet.sql(
        "select max(extract(epoch from at - timestamptz '" + killed_at + "')) from ledger "
        f"where phase = 'start' and deliveries > 1 and job in ({', '.join(map(str, held))})"
    )
    ttl, sweep, polling = 6, 5, 5
    assert float(waited) < ttl + sweep + polling, f"started again after {waited} s"


def test_a_job_that_eats_the_memory_dies_alone(fleet: Release) -> None:
    eventually("a worker", lambda: fleet.workers("hungry"))
    neighbours = fleet.enqueue("shop.work", 20, '{"seconds": 2}', queue="hungry")
    [glutton] = fleet.enqueue("shop.glutton", queue="hungry")

    [dead] = eventually(
        "the glutton is dead",
        lambda: fleet.dead_letters("--kind", "shop.glutton"),
        seconds=240,
        every=2,
    )

    assert (dead["id"], dead["reason"], dead["category"]) == (glutton, "killed_worker", "lost")
    assert len(fleet.ledger([glutton], "start")) == 3
    shown = fleet.redrive("dlq", "show", str(glutton))
    print(shown)
    fleet.wait_for_ends(neighbours)
    assert fleet.dead_letters("--kind", "shop.work") == []
