//! `heist sim`: the shipped scheduler on a machine that does not exist.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | what the command line asks for |
//! | `compare.rs` | workloads on machines of many sizes, as tables |
//! | `chart.rs` | the same as pictures |
//! | `replay.rs`, `soak.rs` | scenarios with one seed, and with seeds without end |
//! | `calibrate.rs` | the simulated machine against this one |

mod calibrate;
mod chart;
mod compare;
mod options;
mod replay;
mod soak;

use options::Options;
use std::process::ExitCode;

const HELP: &str = "\
heist sim: the scheduler that ships, on a simulated machine

usage: heist sim [OPTIONS]                compare policies on many cores
       heist sim --scenario S --seed N    replay one run, step by step the same
       heist sim soak [--seed N]          run scenarios until stopped
       heist sim calibrate                the simulated machine against this one

options, each with what is done without it:
  --workload W,...   tasks-1us,yields,pingpong,bursts,open-70; or all, or of:
                     tree, forks, tasks-0us to tasks-1000us, yields, hot,
                     pingpong, bursts, open-50 to open-95
  --cores N,...      2,16,64 (1 to 1024)
  --topology T,...   flat (one cache); or caches (8 cores a cache), numa (8 a cache,
                     64 a node), cache=N,node=M
  --policy P,...     go,heist; or no-bitmap, no-prediction, no-quiet-end,
                     no-two-rings, no-spin-grace, no-quick-steal, no-groups,
                     no-crew, no-patience, no-near: heist without that departure
  --costs C          here (measured on a virtual machine) or metal
  --seed N           1; equal seeds give equal runs: those of scenarios to the step,
                     measured ones but for where the system puts memory
  --scale N          200: how much there is to do, in µs of work for each core
  --places           also where in the sources cores waited for cache lines and locks
  --out DIR          where the charts go: target/sim
";

/// Runs the command.
pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let mut args = args.peekable();
    match args.peek().map(String::as_str) {
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some("soak") => with_options(args.skip(1), soak::run),
        Some("calibrate") => with_options(args.skip(1), |_| calibrate::run()),
        _ => with_options(args, |options| match &options.scenario {
            Some(_) => replay::run(options),
            None => compare::run(options),
        }),
    }
}

fn with_options(
    args: impl Iterator<Item = String>,
    command: impl FnOnce(&Options) -> Result<(), String>,
) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("heist sim: {message}\n\n`heist sim help` has all options.");
            return ExitCode::from(2);
        }
    };
    match command(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("heist sim: {message}");
            ExitCode::FAILURE
        }
    }
}
