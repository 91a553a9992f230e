//! The protocols of the scheduler: small types that know no threads.
//!
//! Each holds a few shared words, documents every value they can have, and
//! changes them by methods that return `#[must_use]` values: wake this one,
//! look again, go to sleep. The caller does the deed. That makes them fit for a
//! model checker: the loom tests at the end of each file explore every
//! interleaving of the threads that a protocol has (`CONTRIBUTING.md` says how
//! to run them).

pub(crate) mod alarm;
pub(crate) mod branch;
pub(crate) mod condvar;
pub(crate) mod delivery;
#[allow(unsafe_code)] // named file: a list through frames
pub(crate) mod forks;
pub(crate) mod freeze;
pub(crate) mod g_state;
pub(crate) mod global_queue;
pub(crate) mod idle;
pub(crate) mod join;
pub(crate) mod lease;
pub(crate) mod mutex;
pub(crate) mod once;
#[cfg_attr(all(test, loom), allow(unsafe_code))] // named file: its model forks
pub(crate) mod rest;
#[allow(unsafe_code)] // named file: pointers in slots back to references
mod ring;
#[allow(unsafe_code)] // named file: as `ring`
pub(crate) mod run_queue;
pub(crate) mod rwlock;
pub(crate) mod ticket;
pub(crate) mod turn;
