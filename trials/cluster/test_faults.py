"""What goes wrong in a cluster: nodes drained, pods killed, memory at an end."""

import subprocess

import pytest

from trials.cluster.kubernetes import Release, eventually, run

pytestmark = pytest.mark.slow


def test_a_drained_node_loses_nothing_and_burns_no_attempt(fleet: Release) -> None:
    """The pods' own drain, one after the other as the PodDisruptionBudget has it, under load."""
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    old = set(fleet.workers())
    node = fleet.pods("worker")[0]["spec"]["nodeName"]
    # Four that outlast the drain: given back, and not charged for it.
    held = fleet.enqueue("shop.held", 4)
    eventually("they run", lambda: len(fleet.ledger(held, "start")) == 4)
    jobs = held + fleet.enqueue("shop.work", 300, '{"seconds": 0.4}')

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
        (*command, "--timeout", "300s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as drain:
        try:
            eventually(
                "the first eviction",
                lambda: (
                    old - {pod["metadata"]["name"] for pod in fleet.staying("worker")}
                ),
            )
        finally:
            run(
                "kubectl", "uncordon", node
            )  # the only node, perhaps: the next ones need it
        said, _ = drain.communicate(timeout=320)

    assert drain.returncode == 0, said
    ends = fleet.wait_for_ends(jobs)
    eventually("new workers", lambda: len(fleet.workers()) == 2)
    assert old.isdisjoint(fleet.workers()), said
    assert [row for row in ends if row[0] in held and row[2] == 1] == [], (
        "not given back"
    )
    assert [row for row in ends if row[1] != 1] == [], "an attempt was burned"
    assert sorted(row[0] for row in ends) == sorted(jobs), "lost, or ended twice"
    assert fleet.dead_letters() == []


def test_a_pod_killed_by_force_gives_its_jobs_up_within_the_ttl(fleet: Release) -> None:
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    # Four, as many as the worker that is left has slots: what is given up need not wait for one.
    jobs = fleet.enqueue("shop.held", 4)
    eventually("all of them run", lambda: len(fleet.ledger(jobs, "start")) == 4)
    ran = f"from ledger where kind = 'shop.held' and phase = 'start' and job >= {min(jobs)}"
    [[victim]] = fleet.sql(f"select min(pod) {ran}")
    lost = [int(job) for (job,) in fleet.sql(f"select job {ran} and pod = '{victim}'")]

    [[killed_at]] = fleet.sql("select clock_timestamp()")
    fleet.kubectl("delete", "pod", victim, "--force", "--grace-period", "0")

    fleet.wait_for_ends(lost)
    fleet.sql("insert into fixed values ('shop.held')")
    fleet.wait_for_ends(jobs)
    again = {int(job) for (job,) in fleet.sql(f"select job {ran} and deliveries > 1")}
    assert again == set(lost)
    [[waited]] = fleet.sql(
        f"select max(extract(epoch from at - timestamptz '{killed_at}')) {ran} and deliveries > 1"
    )
    ttl, sweep, polling = 15, 5, 5
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

    assert (dead["id"], dead["reason"], dead["category"]) == (
        glutton,
        "killed_worker",
        "lost",
    )
    assert len(fleet.ledger([glutton], "start")) == 3
    shown = fleet.redrive("dlq", "show", str(glutton))
    print(shown)
    fleet.wait_for_ends(neighbours)
    assert fleet.dead_letters("--kind", "shop.work") == []
