//! The simulated backend: a machine of virtual cores inside one OS thread.
//!
//! | file | what |
//! |---|---|
//! | `machine.rs` | the machine: its state, its driver, what happens at each step |
//! | `config.rs` | what a run is told, and what it counts |
//! | `vthread.rs` | a virtual OS thread: a coroutine and what belongs to it |
//! | `cores.rs` | the virtual OS scheduler: which thread is on which core |
//! | `choose.rs` | who takes the next step: at random, by priorities (PCT), by time |
//! | `signal.rs` | signals to a thread |
//! | `fault.rs` | what goes wrong: late and spurious wake-ups, stalls, refusals, deaf threads |
//! | `buffer.rs` | store buffers: what a missing fence lets others see |
//! | `lines.rs`, `cost.rs`, `topology.rs` | what an access costs, and why |
//! | `device.rs` | devices, which become ready |
//! | `record.rs` | the last steps, for a report |
//! | `atomic.rs`, `epoll.rs`, `futex.rs`, `mutex.rs`, `thread.rs`, `world.rs` | the names that `prim` gives out |
//!
//! Every operation of `prim` is a *step*: it costs virtual time, and another
//! thread may go on before it takes effect. Between two steps nobody else runs.
//! All choices come from one seeded generator, so a seed replays a run exactly.
//!
//! A run belongs to a process of its own (`crate::sim::child`): heist's statics
//! are then as new, and a scheduler that was broken on purpose can only break
//! that process.

pub(crate) mod atomic;
mod buffer;
mod choose;
mod config;
mod cores;
mod cost;
mod device;
pub(crate) mod epoll;
mod fault;
pub(crate) mod futex;
mod lines;
mod machine;
pub(crate) mod mutex;
mod record;
mod signal;
pub(crate) mod thread;
mod topology;
mod vthread;
mod world;

pub(crate) use choose::Chooser;
pub(crate) use config::{Config, Counts, Hooks};
pub(crate) use cost::{Costs, HERE, METAL};
pub(crate) use device::Device;
pub(crate) use fault::Faults;
pub(crate) use machine::{
    a_core_stands_still, a_wake_up_is_late, counts, forget_places, has_refused, knobs,
    longest_waits, most_transfers, now, run, running_threads, step_of, violate, work,
};
pub(crate) use topology::{Topology, TopologyError};
pub(crate) use world::{clock, env, hint, os, probe};
