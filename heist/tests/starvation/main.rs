//! Nobody starves, whatever the others do: compute, block their thread, or both.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod hogs;
mod resize;
