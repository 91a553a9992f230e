//! Fork-join.
mod join;
mod meter;
pub use join::{FnContext, join, join_context};
