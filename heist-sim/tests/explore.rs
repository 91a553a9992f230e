//! Many seeds over all scenarios: the rules hold at every step of every run.

use heist_sim::sim::{Case, explore};
use std::ops::ControlFlow;

#[test]
fn the_rules_hold_in_every_scenario() {
    let cases = (0..500).map(|seed| Case::new(None, seed).unwrap());
    match explore(cases, 2, |_| ControlFlow::Continue(())).unwrap() {
        Ok(explored) => println!("{explored:?}"),
        Err(failure) => panic!("{failure}"),
    }
}
