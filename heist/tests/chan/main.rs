//! `heist::chan` keeps the promises of crossbeam-channel's documentation and of
//! Go's channels: on goroutines, on plain OS threads, and between the two.

#[path = "../common/mod.rs"]
mod common;
mod dropping;
mod errors;
mod fairness;
mod grammar;
mod passing;
mod ready;
mod select;
mod shutdown;
mod stress;
mod timers;

use common::*;
use heist::chan::{
    self, Receiver, RecvError, RecvTimeoutError, Select, SelectTimeoutError, SelectedOperation,
    SendError, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded, select,
    select_biased, unbounded,
};
use heist::{go, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Long enough that something which waits is seen to wait.
const A_WHILE: Duration = Duration::from_millis(20);

const CENTURIES: Duration = Duration::from_secs(100 * 365 * 86_400 * 3);
