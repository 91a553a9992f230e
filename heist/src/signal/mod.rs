//! Signals on channels: Go's `os/signal`.
//!
//! ```
//! use heist::signal::{self, Signal};
//!
//! # fn main() -> std::io::Result<()> {
//! heist::run(|| {
//!     let signals = signal::notify(&[Signal::USR1, Signal::HUP])?;
//!     signal::raise(Signal::USR1)?;
//!     assert_eq!(signals.recv(), Ok(Signal::USR1));
//!     signal::stop(&signals);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Go's `Notify` takes the channel; [`notify`] makes it, so that nobody can hand in
//! one without a buffer, and so that dropping the receiver is enough to be rid of
//! it. Everything else is Go's: a signal goes to all who asked for it, nobody is
//! waited for, and when the last one stops, the signal does what it did before.
//!
//! # What comes through
//!
//! A receiver has room for as many signals as it asked for. What finds no room is
//! dropped, as in Go, and signals of one kind that come in one moment are one: a
//! signal says that something has happened, and not how often.
//!
//! # Signals that are special
//!
//! | signal | what happens |
//! |---|---|
//! | `KILL`, `STOP` | cannot be caught: [`notify`] and [`ignore`] return an error |
//! | `SEGV`, `BUS`, `FPE`, `ILL` | a fault of the running instruction, which cannot be waited for: an error. Stack overflows are reported with the goroutine's name |
//! | `URG` | the scheduler preempts with it: an error |
//! | `TRAP`, `SYS` | a debugger's or a sandbox's answer to the running instruction: only for those who name them, as in Go |
//! | `CHLD` | does nothing by itself. One who names it in [`ignore`] tells the kernel more: that nobody waits for children |
//! | `QUIT` | prints all goroutines and ends the program, as in Go; while somebody is notified of it, only that |
//!
//! # How
//!
//! The handler sets a bit and writes to an eventfd; a thread, which starts with the
//! first [`notify`], reads that and sends to the channels. A thread, and not a
//! goroutine, since signals belong to the process, and runtimes come and go. While
//! it is there, a program in which all goroutines wait is not reported as a
//! deadlock, since a signal may come.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | who is told about what |
//! | `kind.rs` | [`Signal`] |
//! | `handler.rs` | handlers and dispositions |

#[allow(unsafe_code)] // named file: signal handlers
mod handler;
mod kind;

pub use kind::Signal;

use crate::chan::{self, Receiver, Sender, TrySendError};
use crate::prim::thread;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use handler::{Disposition, Wanted};
use std::collections::BTreeMap;
use std::io;

/// Who is told about what, and what signals did before.
struct Registry {
    receivers: Vec<Entry>,
    /// What signals did that we have changed, until it is put back.
    before: BTreeMap<Signal, Disposition>,
    /// Whether the thread runs that reads what the handler writes.
    watched: bool,
}

/// One call of [`notify`].
struct Entry {
    sender: Sender<Signal>,
    signals: Vec<Signal>,
}

// A mutex for users, and none of the runtime's: a `try_send` that finds no room may
// yield, which nobody may who holds one of those.
static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { receivers: Vec::new(), before: BTreeMap::new(), watched: false });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on these signals go to the channel that is returned, and no longer do
/// what they did; an empty list means all signals that can be had. Go's `signal.Notify`.
///
/// It ends with [`stop`], with [`reset`] or [`ignore`] of the signal, or when all
/// receivers are dropped: then the next such signal notices, and does what it did
/// before.
///
/// # Errors
///
/// If a signal cannot be caught, or belongs to the runtime; nothing is changed then.
/// If there is no thread or descriptor to watch for signals.
///
/// ```
/// use heist::signal::{self, Signal};
///
/// assert!(signal::notify(&[Signal::KILL]).is_err());
/// let hangups = signal::notify(&[Signal::HUP]).unwrap();
/// assert!(hangups.is_empty());
/// ```
pub fn notify(signals: &[Signal]) -> io::Result<Receiver<Signal>> {
    let mut signals = named_or_all(signals);
    for &signal in &signals {
        catchable(signal)?;
    }
    // What the runtime itself does with a signal is what is put back later.
    crate::sched::signal::install();
    signals.sort_unstable();
    signals.dedup();
    let (sender, receiver) = chan::bounded(signals.len().max(1));
    let mut registry = registry();
    registry.watch()?;
    for &signal in &signals {
        if let Err(error) = registry.set(signal, Wanted::Notify) {
            registry.put_back_unwanted();
            return Err(error);
        }
    }
    registry.receivers.push(Entry { sender, signals });
    Ok(receiver)
}

/// No more signals for this receiver, which got all that had come. Signals that
/// nobody else is notified of do what they did before. Go's `signal.Stop`.
///
/// ```
/// use heist::signal::{self, Signal};
///
/// let signals = signal::notify(&[Signal::WINCH]).unwrap();
/// signal::raise(Signal::WINCH).unwrap();
/// signal::stop(&signals);
/// assert_eq!(signals.recv(), Ok(Signal::WINCH));
/// assert!(signals.recv().is_err(), "no more to come");
/// ```
pub fn stop(receiver: &Receiver<Signal>) {
    let mut registry = registry();
    let Some(at) = registry.receivers.iter().position(|e| receiver.is_of(&e.sender)) else {
        return;
    };
    let signals = registry.receivers[at].signals.clone();
    // Put back first: what comes later is not for us, what came is delivered.
    for &signal in &signals {
        if registry.receivers.iter().filter(|e| e.signals.contains(&signal)).count() == 1 {
            registry.put_back(signal);
        }
    }
    registry.deliver();
    registry.receivers.retain(|e| !receiver.is_of(&e.sender));
}

/// Nobody is notified of these signals any longer, and they do what they did
/// before; an empty list means all signals. Go's `signal.Reset`.
///
/// ```
/// use heist::signal::{self, Signal};
///
/// let signals = signal::notify(&[Signal::HUP, Signal::USR1]).unwrap();
/// signal::reset(&[]);
/// assert!(signals.recv().is_err(), "no more to come");
/// ```
pub fn reset(signals: &[Signal]) {
    let mut registry = registry();
    let signals = match signals {
        [] => registry.changed(),
        named => named.to_vec(),
    };
    for &signal in &signals {
        registry.put_back(signal);
    }
    registry.deliver();
    registry.forget(&signals);
}

/// Nobody is notified of these signals any longer, and they do nothing; an empty list
/// means all signals that can be had. Undone by [`reset`] and by [`notify`]. Go's
/// `signal.Ignore`.
///
/// # Errors
///
/// As [`notify`].
///
/// ```
/// use heist::signal::{self, Signal};
///
/// signal::ignore(&[Signal::USR2]).unwrap();
/// assert!(signal::ignored(Signal::USR2));
/// signal::raise(Signal::USR2).unwrap();
/// signal::reset(&[Signal::USR2]);
/// assert!(!signal::ignored(Signal::USR2));
/// ```
pub fn ignore(signals: &[Signal]) -> io::Result<()> {
    let named = !signals.is_empty();
    let signals = named_or_all(signals);
    for &signal in &signals {
        catchable(signal)?;
    }
    crate::sched::signal::install();
    let mut registry = registry();
    for &signal in &signals {
        if signal == Signal::CHLD && !named {
            // Nothing is what it does already. If it were ignored, the kernel would keep
            // no child's end, and whoever waits for one would get an error.
            registry.put_back(signal);
        } else {
            registry.set(signal, Wanted::Ignore)?;
        }
    }
    registry.deliver();
    registry.forget(&signals);
    Ok(())
}

/// Whether a signal does nothing, by [`ignore`] or since the process was started
/// that way (as `nohup` does). Go's `signal.Ignored`.
#[must_use]
pub fn ignored(signal: Signal) -> bool {
    Disposition::of(signal).is_ok_and(|now| now.is_ignore())
}

/// Waits for Ctrl-C, or another `SIGINT`.
///
/// Between two calls `SIGINT` ends the program, as it does without them. To keep
/// it from doing so, hold the receiver of `notify(&[Signal::INT])` instead.
///
/// ```no_run
/// #[heist::main]
/// fn main() {
///     heist::go(|| println!("serving"));
///     heist::signal::ctrl_c().unwrap();
///     println!("closing down");
/// }
/// ```
///
/// # Errors
///
/// As [`notify`].
#[track_caller]
pub fn ctrl_c() -> io::Result<()> {
    let interrupts = notify(&[Signal::INT])?;
    let received = interrupts.recv();
    stop(&interrupts);
    received.map(drop).map_err(|_| io::Error::other("SIGINT was reset or ignored meanwhile"))
}

/// Sends a signal to the calling thread, as C's `raise` does: on return those who
/// are notified of it will get it, and a handler of another's has run.
///
/// # Errors
///
/// If there is no such signal.
pub fn raise(signal: Signal) -> io::Result<()> {
    handler::raise(signal)
}

/// What a caller asks for who names these: if none, all that users may have and that are
/// not about the running instruction.
fn named_or_all(signals: &[Signal]) -> Vec<Signal> {
    if !signals.is_empty() {
        return signals.to_vec();
    }
    let may_be_had = |&signal: &Signal| {
        signal != Signal::TRAP && signal != Signal::SYS && catchable(signal).is_ok()
    };
    (1..=libc::SIGRTMAX()).map(Signal::from_raw).filter(may_be_had).collect()
}

/// Whether users may have a signal.
fn catchable(signal: Signal) -> io::Result<()> {
    let why = match signal {
        Signal::KILL | Signal::STOP => "the kernel lets nobody catch or ignore it",
        Signal::SEGV | Signal::BUS | Signal::FPE | Signal::ILL => {
            "it is a fault of the running instruction, which cannot be left to another"
        }
        Signal::URG => "the scheduler preempts goroutines with it",
        // The C library keeps some for itself.
        _ => return Disposition::of(signal).map(drop),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{signal}: {why}")))
}

impl Registry {
    /// Starts the thread that reads what the handler writes.
    fn watch(&mut self) -> io::Result<()> {
        if !self.watched {
            handler::open()?;
            thread::start("heist-signals".to_owned(), 64 << 10, || {
                loop {
                    handler::wait();
                    registry().deliver();
                }
            })?;
            self.watched = true;
        }
        Ok(())
    }

    /// Changes what a signal does.
    fn set(&mut self, signal: Signal, wanted: Wanted) -> io::Result<()> {
        let before = handler::set(signal, wanted)?;
        self.before.entry(signal).or_insert(before);
        Ok(())
    }

    /// Lets a signal do again what it did, unless somebody else has changed it
    /// meanwhile.
    fn put_back(&mut self, signal: Signal) {
        if let Some(before) = self.before.remove(&signal)
            && Disposition::of(signal).is_ok_and(|now| now.is_ours())
        {
            handler::put_back(signal, &before);
        }
    }

    /// Sends what has come to those who want it.
    fn deliver(&mut self) {
        for signal in handler::take_pending() {
            let (mut wanted, mut gone) = (false, false);
            self.receivers.retain(|entry| {
                if !entry.signals.contains(&signal) {
                    return true;
                }
                let sent = entry.sender.try_send(signal);
                let alive = !matches!(sent, Err(TrySendError::Disconnected(_)));
                wanted |= alive;
                gone |= !alive;
                alive
            });
            if gone {
                self.put_back_unwanted();
            }
            if !wanted {
                // It was caught for somebody who has left since: it does what such
                // a signal does by now.
                let _ = handler::raise(signal);
            }
        }
    }

    /// The signals that do not do what they did.
    fn changed(&self) -> Vec<Signal> {
        self.before.keys().copied().collect()
    }

    /// Puts back what nobody is notified of any longer.
    fn put_back_unwanted(&mut self) {
        for signal in self.changed() {
            let wanted = self.receivers.iter().any(|e| e.signals.contains(&signal));
            if !wanted && !ignored(signal) {
                self.put_back(signal);
            }
        }
    }

    /// Takes signals from all who are notified of them.
    fn forget(&mut self, signals: &[Signal]) {
        for entry in &mut self.receivers {
            entry.signals.retain(|signal| !signals.contains(signal));
        }
        self.receivers.retain(|entry| !entry.signals.is_empty());
    }
}
