//! Scenarios with seeds without end.

use super::compare::processes;
use super::options::Options;
use heist_sim::sim::{Case, explore};
use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often it says how far it is.
const EVERY: Duration = Duration::from_secs(5);

pub(super) fn run(options: &Options) -> Result<(), String> {
    // Each soak somewhere else, unless it is told where.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let first = options.seed.unwrap_or(now.wrapping_mul(1 << 20));
    println!("soaking from seed {first}; stop with Ctrl-C");
    let cases = (0..).map(|n| {
        let seed = first.wrapping_add(n);
        Case::new(options.scenario.as_deref(), seed).unwrap_or_else(|error| panic!("{error}"))
    });
    let (started, mut said) = (Instant::now(), Instant::now());
    let outcome = explore(cases, processes(), |so_far| {
        if said.elapsed() >= EVERY {
            said = Instant::now();
            let minutes = started.elapsed().as_secs_f64() / 60.0;
            println!(
                "{} seeds, {:.0} a minute, {:.1} million steps: every rule holds",
                so_far.runs,
                so_far.runs as f64 / minutes,
                so_far.steps as f64 / 1e6
            );
            // A closed pipe ends it.
            if std::io::stdout().flush().is_err() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    match outcome {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(failure)) => Err(failure.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
