//! Channels and select.
//!
//! Source compatible with crossbeam-channel 0.5: a program that says
//! `use heist::chan` instead of `crossbeam_channel` compiles and behaves the
//! same, on goroutines, on plain OS threads, and between the two. A goroutine
//! that waits parks; a thread that waits blocks.
//!
//! ```
//! use heist::chan;
//!
//! heist::run(|| {
//!     let (s, r) = chan::bounded(0);
//!     heist::go(move || s.send("hello").unwrap());
//!     assert_eq!(r.recv(), Ok("hello"));
//! });
//! ```
//!
//! Inside it is Go's channel: a lock around a ring and two queues of those who
//! wait, first come first served; a message for one who waits goes straight into
//! its stack, and it runs next.
//!
//! # What differs
//!
//! - A goroutine that tries in vain, again and again, lets others run: each 64th
//!   such call yields.
//! - An operation that a `select!` has chosen, and whose message is then not made
//!   since its expression returns, breaks or panics, is given up: crossbeam panics
//!   there. [`SelectedOperation`] panics as in crossbeam, but not while its
//!   goroutine unwinds already.
//! - A receiver whose senders have gone since the runtime shuts down, which unwinds them,
//!   is not told so: it is unwound itself, as if it still waited.
//!
//! | file | what |
//! |---|---|
//! | `protocol/` | the ring, the queues, and what happens to them: model-checked |
//! | `channel.rs`, `until.rs` | sending and receiving, with sleep |
//! | `handle.rs` | who refers to a channel |
//! | `make.rs` | making channels |
//! | `sender.rs`, `receiver.rs`, `iter.rs`, `error.rs` | what users see |
//! | `large.rs` | messages that need much of a stack |
//! | `timer.rs` | channels that the clock sends to |
//! | `select/`, `macros.rs` | waiting at several channels at once |

pub(crate) mod protocol;

#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: records and slots on the stack
mod channel;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: the counted references to a channel
mod handle;
#[cfg(not(loom))]
mod iter;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
mod macros;
#[cfg(not(loom))]
mod make;
#[cfg(not(loom))]
mod receiver;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named folder: messages of types that a select does not know
mod select;
#[cfg(not(loom))]
mod sender;
#[cfg(not(loom))]
mod timer;
#[cfg(not(loom))]
mod until;

#[cfg(not(loom))]
#[doc(hidden)] // crossbeam's own tests call the inside of its macro by this name
pub use crate::__chan_select as crossbeam_channel_internal;
#[cfg(not(loom))]
pub use error::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
#[cfg(not(loom))]
pub use iter::{IntoIter, Iter, TryIter};
#[cfg(not(loom))]
pub use make::{after, at, bounded, never, tick, unbounded};
#[cfg(not(loom))]
pub use receiver::Receiver;
#[cfg(not(loom))]
pub use select::{Select, SelectedOperation, internal};
#[cfg(not(loom))]
pub use sender::Sender;
#[cfg(not(loom))]
#[doc(inline)]
pub use {crate::__chan_select as select, crate::__chan_select_biased as select_biased};
