//! Nobody starves, whatever the others do: compute, block their thread, or both.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod frozen;
mod hogs;
mod idle;
mod resize;
mod signals;
mod stress;
mod threads;
mod turns;
