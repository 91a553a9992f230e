//! `heist::time`, `thread::sleep` and `thread::park_timeout`: nothing comes
//! early, nothing that was stopped comes at all, and nobody waits for ever.

#[path = "../common/mod.rs"]
mod common;
mod deadlines;
mod sleeping;
mod timers;

use common::*;
use heist::thread;
use heist::time::{self, Duration, Instant, Timer};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// Far away, but not for ever.
const HOUR: Duration = Duration::from_secs(3600);

/// What std's module has is here, too.
const _: time::SystemTime = time::UNIX_EPOCH;
const _: Option<(time::SystemTimeError, time::TryFromFloatSecsError)> = None;
