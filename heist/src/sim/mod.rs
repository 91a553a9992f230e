//! The simulator: the library's own sources on a machine of virtual cores.
//!
//! Only in the package `heist-sim`, which compiles these sources with
//! `--cfg sim`. The machine itself is `prim::sim`.
//!
//! | file | what |
//! |---|---|
//! | `scenario.rs`, `scenario/` | small programs that a run explores: spawning, waking and ending; forks, preemption, resizing, sync, devices |
//! | `check.rs` | the rules that hold at every step |
//! | `explore.rs` | running scenarios with many seeds, and with mistakes |
//! | `workload.rs` | programs whose speed is measured |
//! | `measure.rs`, `probe.rs` | measuring them on machines of many sizes |
//! | `child.rs` | a process for each run |

mod check;
#[allow(unsafe_code)] // named file: processes and pipes
mod child;
mod explore;
mod measure;
#[allow(unsafe_code)] // named file: notes shared on one OS thread
mod probe;
mod scenario;
mod workload;

use crate::prim::rng::Rng;

pub use explore::{Case, Explored, Failure, UnknownScenario, explore, mutants, scenarios};
pub use measure::{CostTable, Measured, Plan, PlanError, Policy, measure};
pub use workload::{UnknownWorkload, Workload};
