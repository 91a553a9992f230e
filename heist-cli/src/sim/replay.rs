//! One run of a scenario, again.

use super::options::Options;
use heist_sim::sim::{Case, explore};
use std::ops::ControlFlow;

pub(super) fn run(options: &Options) -> Result<(), String> {
    let Some(seed) = options.seed else {
        return Err("--scenario needs a --seed".into());
    };
    let case = Case::new(options.scenario.as_deref(), seed).map_err(|error| error.to_string())?;
    let run = explore([case], 1, |_| ControlFlow::Continue(())).map_err(|e| e.to_string())?;
    match run {
        Ok(run) if run.skipped > 0 => {
            println!("the machine refused the runtime its first thread: nothing to see");
            Ok(())
        }
        Ok(run) => {
            println!("{}, seed {seed}: {} steps, every rule holds", case.scenario(), run.steps);
            Ok(())
        }
        Err(failure) => Err(failure.to_string()),
    }
}
