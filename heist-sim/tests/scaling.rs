//! What the scheduler does on many cores: figures of the simulated machine, not of time.
//! `heist/src/sched/SCALING.md` has more of them, and longer runs.

use heist_sim::sim::{CostTable, Measured, Plan, Policy, measure};

fn plan(machine: (usize, &str), workload: &str, policy: Policy, scale: usize) -> Plan {
    Plan::new(workload.parse().unwrap(), machine, policy, 1, scale)
        .unwrap()
        .with_costs(CostTable::Metal)
}

/// One run for each of the numbers of cores.
fn on(cores: &[usize], workload: &str, scale: usize) -> Vec<Measured> {
    let plan = |&cores: &usize| plan((cores, "flat"), workload, Policy::Heist, scale);
    let mut all: Vec<(usize, Measured)> = Vec::new();
    measure(cores.iter().map(plan), 2, |plan, measured| all.push((plan.cores(), measured)))
        .unwrap();
    all.sort_by_key(|(cores, _)| *cores);
    all.into_iter().map(|(_, measured)| measured).collect()
}

/// Tasks of 20 µs arrive at random, 70 % of what the machine can do: how long they wait
/// does not grow with the machine, and neither does a search.
#[test]
fn waiting_and_searching_do_not_grow_with_the_machine() {
    let [two, few, many] = &on(&[2, 16, 64], "open-70", 800)[..] else { panic!() };
    let p99 = |m: &Measured| m.latency[1];
    assert!(p99(few) < p99(two) && p99(many) < p99(two), "{two:?}\n{few:?}\n{many:?}");
    assert!(many.probes_per_search < 1.5 * few.probes_per_search, "{few:?}\n{many:?}");
    assert!(many.search < 1.5 * few.search, "{few:?}\n{many:?}");
}

/// No word and no lock that all share is in the way of tasks of 1 µs.
#[test]
fn short_tasks_keep_many_cores_busy() {
    let [few, many] = &on(&[16, 256], "tasks-1us", 400)[..] else { panic!() };
    assert!(many.efficiency > 0.9 * few.efficiency, "{few:?}\n{many:?}");
    assert!(many.lock_wait < 50.0, "{many:?}");
}

/// On a machine of several caches and nodes thieves look near them first: fewer lines come
/// from beyond the own cache, and no core waits for work that is far away.
#[test]
fn what_is_stolen_comes_from_near() {
    let plan =
        |policy: &str| plan((64, "cache=8,node=32"), "tasks-1us", policy.parse().unwrap(), 400);
    let mut near = [Measured::default(), Measured::default()];
    measure(["heist", "no-near"].map(plan), 2, |plan, measured| {
        near[usize::from(plan.policy() != Policy::Heist)] = measured;
    })
    .unwrap();
    let [with, without] = &near;
    let far = |m: &Measured| (m.transfers_by[1] + m.transfers_by[2]) / m.transfers;
    assert!(far(with) < 0.8 * far(without), "{with:?}\n{without:?}");
    assert!(with.efficiency > 0.95 * without.efficiency, "{with:?}\n{without:?}");
}
