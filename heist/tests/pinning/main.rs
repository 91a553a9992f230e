//! Goroutines that keep their OS thread: by locking it, by a pin, or since the
//! guard of thread-locals found a reason.

#[path = "../common/mod.rs"]
mod common;
mod guard;
mod lock;
