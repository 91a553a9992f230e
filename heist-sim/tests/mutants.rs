//! Each deliberate mistake in the protocols is caught: a checker that never
//! fails proves nothing. (Those that only a model can see are in the models of
//! `sched::protocol` and `poll`.)

use heist_sim::sim::{Case, explore, mutants};
use std::ops::ControlFlow;

/// Seeds that each mutant may take to be found. Most need fewer than a hundred.
const SEEDS: u64 = 20_000;

/// Mistakes that few programs meet, and one that does. The others are looked for in all.
const AT_HOME: [(&str, &str); 16] = [
    ("YieldUnseen", "wake-and-yield"),
    ("TakeInside", "freeze"),
    ("RaidUnfenced", "forks-and-hogs"),
    ("UnlinkBlind", "forks"),
    ("ReclaimUnseen", "forks"),
    ("FreezeAnywhere", "freeze"),
    ("IgnoreEvent", "devices"),
    ("AnyDeadline", "devices-closing"),
    ("ForgetClosed", "devices-closing"),
    ("PollNobody", "devices"),
    ("NoRing", "devices"),
    ("RegisterUnseen", "devices-outside"),
    ("DissolveQuietly", "devices-two-runtimes"),
    ("ForgetQueue", "resize"),
    ("ForgetTimers", "resize"),
    ("GoOnInHand", "shutdown"),
];

#[test]
fn every_mutant_is_caught() {
    let mut missed = Vec::new();
    for mutant in mutants() {
        let home = AT_HOME.iter().find(|(name, _)| *name == mutant).map(|(_, home)| *home);
        let cases = (0..SEEDS).map(|seed| Case::new(home, seed).unwrap().with_mutant(&mutant));
        match explore(cases, 2, |_| ControlFlow::Continue(())).unwrap() {
            Ok(_) => missed.push(mutant),
            Err(failure) => {
                let (seed, scenario) = (failure.case.seed(), failure.case.scenario());
                let what = failure.report.lines().next().unwrap_or_default();
                println!("{mutant}: seed {seed}, {scenario}: {what}");
            }
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
