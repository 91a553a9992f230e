//! What is ready: descriptors that somebody waits for. Knows no goroutines; those
//! who wait are values that it keeps and gives back.
//!
//! | file | concept |
//! |---|---|
//! | `direction` | who waits for one direction of a descriptor, and what has happened to it; model-checked |
//! | `desc` | a descriptor: two directions, and where it is registered |
//! | `table` | memory for them that is never freed, by number |
//! | `poller` | an epoll instance, and who looks at it |
//! | `watch` | whether one who is going to wait there looks for a while first |
//!
//! `sched::netpoll` has the goroutines: who looks when, and whom to wake.

#[allow(unsafe_code)] // named file: the list behind a bit
pub(crate) mod direction;

#[cfg(not(loom))]
pub(crate) mod desc;
#[cfg(not(loom))]
pub(crate) mod poller;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: static references kept as pointers
pub(crate) mod table;
#[cfg(not(loom))]
mod watch;
