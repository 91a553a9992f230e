//! Machines by shape: what is far away costs more, and what is fresh is a fault.

use heist_sim::sim::{CostTable, Measured, Plan, Policy, Workload, measure};

fn measured(workload: Workload, machine: (usize, &str)) -> Measured {
    let plan = Plan::new(workload, machine, Policy::Heist, 7, 64).unwrap();
    let mut result = None;
    measure([plan.with_costs(CostTable::Metal)], 1, |_, m| result = Some(m)).unwrap();
    result.expect("one plan, one result")
}

#[test]
fn lines_come_from_as_far_as_the_shape_says() {
    for (shape, near, node, remote) in [
        ("flat", true, false, false),
        ("caches", true, true, false),
        ("cache=4,node=8", true, true, true),
        ("cache=1,node=8", false, true, true),
        ("cache=8,node=8", true, false, true),
    ] {
        let m = measured(Workload::Tasks(1_000), (16, shape));
        assert_eq!(m.transfers_by.map(|n| n > 0.0), [near, node, remote], "{shape}: {m:?}");
        let sum: f64 = m.transfers_by.iter().sum();
        assert!((sum - m.transfers).abs() < 1e-6, "{shape}: {m:?}");
    }
}

/// The same program with the same seed, where lines come from farther away, computes a
/// smaller part of the time.
#[test]
fn distance_costs() {
    let of = |shape| measured(Workload::Tasks(1_000), (32, shape)).efficiency;
    let (flat, numa) = (of("flat"), of("cache=1,node=1"));
    assert!(numa < flat, "flat: {flat} of the time, each core a node: {numa}");
}

/// A tree of forks computes on all cores, and forks that nobody takes cost little.
#[test]
fn forks_spread_over_the_cores() {
    for cores in [1, 8] {
        let m = measured(Workload::Forks, (cores, "flat"));
        assert!(m.efficiency > 0.5, "{cores} cores: {m:?}");
    }
}

/// Goroutines that are all alive at once need a stack each, which is fresh; later ones
/// find those.
#[test]
fn fresh_pages_are_faults() {
    let growing = measured(Workload::Hot, (4, "flat"));
    assert!(growing.page_faults > 0.0, "more are alive than in the warm-up: {growing:?}");
    let steady = measured(Workload::PingPong, (4, "flat"));
    assert!(steady.page_faults < 0.1, "there is nothing new: {steady:?}");
}

#[test]
fn machines_that_cannot_be_are_errors() {
    for (cores, shape, says) in [
        (0, "flat", "1 to 1024 cores"),
        (1025, "flat", "1 to 1024 cores"),
        (8, "ring", "flat (one cache)"),
        (8, "cache=3,node=4", "multiple"),
        (8, "cache=16", "multiple"),
        (8, "cache=", "no topology"),
        (8, "cache=2,cache=2", "no topology"),
    ] {
        let error = Plan::new(Workload::Tree, (cores, shape), Policy::Go, 1, 64).unwrap_err();
        assert!(error.to_string().contains(says), "{cores} {shape}: {error}");
    }
}
