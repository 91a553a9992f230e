//! The channel as a protocol: what happens to its words, and who is to be woken.
//!
//! Knows no threads: whoever waits is a [`Waits`], so the same code runs under
//! the model checker (`model.rs`).

pub(crate) mod buffer;
#[allow(unsafe_code)] // named file: records on the stacks of those who wait
pub(crate) mod queue;
#[allow(unsafe_code)] // named file: messages in the slots of those who wait
pub(crate) mod state;

#[cfg(all(test, loom))]
#[allow(unsafe_code)] // named file: records on the stacks of those who wait
mod model;
