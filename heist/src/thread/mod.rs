//! std's thread API, for goroutines.
//!
//! A program that says `use heist::thread;` instead of `use std::thread;` gets
//! goroutines for threads and otherwise the same behaviour. Everything here can
//! be called from plain OS threads too: [`spawn`] then starts a goroutine on the
//! default runtime, [`JoinHandle::join`] and [`park`] block the thread.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`Thread`], ids, [`current`], [`park`] |
//! | `join.rs` | [`JoinHandle`], [`Builder`], [`spawn`] |
//! | `scoped.rs` | [`scope`] |
//!
//! ```
//! use heist::thread;
//!
//! let handle = thread::spawn(|| thread::current().id());
//! assert_eq!(handle.thread().id(), handle.join().unwrap());
//! ```

#[allow(unsafe_code)] // named file: results in control blocks
pub(crate) mod join;
#[allow(unsafe_code)] // named file: closures that borrow
pub(crate) mod scoped;

pub(crate) use join::spawn_idle;
pub use join::{Builder, JoinHandle, spawn};
pub use scoped::{Scope, ScopedJoinHandle, scope};
// Where std has them: they are those of `goroutine_local!`.
pub use crate::local::{AccessError, LocalKey};

/// What [`JoinHandle::join`] returns: the value, or the payload of the panic.
pub type Result<T> = std::result::Result<T, Box<dyn std::any::Any + Send + 'static>>;

use crate::context::Resume;
use crate::prim;
use crate::prim::clock;
use crate::sched::g::{G, WaitReason, flag};
use crate::sched::protocol::ticket::{Parking, Unpark, Withdraw};
use crate::sched::timers::{self, Due};
use crate::sched::{m, names, park as parking, schedt};
use std::fmt;
use std::num::NonZeroU64;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// The identity of a goroutine or of a plain thread: unique in the process,
/// never used again.
///
/// ```
/// use heist::thread;
///
/// let other = thread::spawn(|| thread::current().id()).join().unwrap();
/// assert_ne!(thread::current().id(), other);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadId(NonZeroU64);

/// A handle to a goroutine, or to a plain thread that uses heist.
///
/// ```
/// use heist::thread;
///
/// let named = thread::Builder::new().name("worker".into()).spawn(|| {
///     assert_eq!(thread::current().name(), Some("worker"));
/// })?;
/// named.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Thread(Repr);

#[derive(Clone)]
enum Repr {
    Goroutine { g: &'static G, id: u64, name: Option<Arc<str>> },
    Os { thread: prim::thread::Thread, id: u64 },
}

// It names one who runs, and changes nothing of what that one has.
impl UnwindSafe for Thread {}
impl RefUnwindSafe for Thread {}

impl Thread {
    #[inline]
    fn of(g: &'static G, name: Option<Arc<str>>) -> Thread {
        Thread(Repr::Goroutine { g, id: g.id(), name })
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        let (Repr::Goroutine { id, .. } | Repr::Os { id, .. }) = &self.0;
        // Ids count from 1.
        ThreadId(NonZeroU64::new(*id).unwrap_or(NonZeroU64::MIN))
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Repr::Goroutine { name, .. } => name.as_deref(),
            Repr::Os { thread, .. } => thread.name(),
        }
    }

    /// Makes its next, or present, [`park`] return. What happened before this
    /// call happened before that return.
    ///
    /// ```
    /// use heist::thread;
    ///
    /// let sleeper = thread::spawn(thread::park);
    /// sleeper.thread().unpark();
    /// sleeper.join().unwrap();
    /// ```
    pub fn unpark(&self) {
        let _after = parking::SafePointAfter;
        match &self.0 {
            Repr::Os { thread, .. } => thread.unpark(),
            Repr::Goroutine { g, id, .. } => {
                if g.ticket.unpark(*id) == Unpark::Ready {
                    parking::ready(g);
                }
            }
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The goroutine, or the plain thread, that calls.
#[inline(never)] // after a switch it may be another thread
#[must_use]
pub fn current() -> Thread {
    match m::current_g() {
        Some(g) => Thread::of(g, g.has(flag::NAMED).then(|| names::get(g.id())).flatten()),
        None => Thread(Repr::Os { thread: prim::thread::current(), id: os_id() }),
    }
}

/// The id of a plain thread, from the same numbers as those of goroutines.
#[inline(never)]
fn os_id() -> u64 {
    thread_local! {
        static ID: u64 = schedt::reserve_ids(1);
    }
    ID.try_with(|id| *id).unwrap_or_else(|_| schedt::reserve_ids(1))
}

/// Whether the caller unwinds because of a panic. A goroutine that does stays on
/// its thread until that is over, so the answer is the goroutine's own.
///
/// ```
/// assert!(!heist::thread::panicking());
/// ```
#[must_use]
pub fn panicking() -> bool {
    prim::thread::panicking()
}

/// How many goroutines can run at the same time with profit: the CPUs that this
/// process may use.
///
/// # Errors
///
/// As in std, if the system does not tell.
///
/// ```
/// assert!(heist::thread::available_parallelism()?.get() >= 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn available_parallelism() -> std::io::Result<std::num::NonZeroUsize> {
    prim::thread::available_parallelism()
}

/// Lets other goroutines run. It returns when those that are runnable now have
/// had their turn.
///
/// ```
/// heist::run(|| {
///     let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
///     let set = flag.clone();
///     heist::go(move || set.store(true, std::sync::atomic::Ordering::Release));
///     while !flag.load(std::sync::atomic::Ordering::Acquire) {
///         heist::thread::yield_now();
///     }
/// });
/// ```
#[inline]
pub fn yield_now() {
    parking::yield_now();
}

/// Sleeps until the caller's token is there, and takes it. As in std, it may
/// return without one: use it in a loop that checks what it waits for.
///
/// ```
/// use heist::thread;
///
/// heist::run(|| {
///     thread::current().unpark(); // the token is kept
///     thread::park();
/// });
/// ```
#[track_caller]
pub fn park() {
    let Some(g) = m::current_g() else { return prim::thread::park() };
    match g.ticket.park() {
        Parking::Sleep => sleep_parked(g, Location::caller()),
        Parking::Token => parking::wait_point(),
    }
}

/// Like [`park`], for at most so long.
///
/// ```
/// use std::time::Duration;
///
/// heist::thread::park_timeout(Duration::from_millis(1));
/// ```
#[track_caller]
pub fn park_timeout(timeout: Duration) {
    let Some(g) = m::current_g() else { return prim::thread::park_timeout(timeout) };
    if g.ticket.park() == Parking::Token {
        return parking::wait_point();
    }
    let number = g.turn().begin();
    let due = Due::Unpark(g, number);
    let armed = timers::arm(due, clock::after(timeout));
    if !prim::thread::panicking() {
        sleep_parked(g, Location::caller());
    } else if armed.is_some()
        && parking::park_for_a_time(g, WaitReason::Park, Location::caller()) == Resume::Run
    {
        g.ticket.woken();
    } else {
        // The runtime closes and has no timers: as if unparked, which is
        // always allowed.
        give_up(g);
    }
    if g.turn().close(number)
        && let Some(armed) = armed
    {
        armed.disarm();
    }
}

/// Sleeps until the token comes, or the clock takes its place.
fn sleep_parked(g: &'static G, site: &'static Location<'static>) {
    /// Withdraws when a shutdown unwinds the park.
    struct GiveUp(&'static G);
    impl Drop for GiveUp {
        fn drop(&mut self) {
            give_up(self.0);
        }
    }
    let on_unwind = GiveUp(g);
    parking::park(WaitReason::Park, site);
    std::mem::forget(on_unwind);
    g.ticket.woken();
}

fn give_up(g: &'static G) {
    if g.ticket.withdraw() == Withdraw::TooLate {
        parking::absorb();
    }
}

/// Sleeps for at least so long: [`time::sleep`](crate::time::sleep).
///
/// ```
/// heist::thread::sleep(std::time::Duration::from_millis(1));
/// ```
#[track_caller]
pub fn sleep(duration: Duration) {
    crate::time::sleep(duration);
}

/// [`sleep`] in whole milliseconds: std has it, for programs from before `Duration`.
///
/// ```
/// # #[allow(deprecated)]
/// heist::thread::sleep_ms(1);
/// ```
#[deprecated = "use `heist::thread::sleep`"]
#[track_caller]
pub fn sleep_ms(ms: u32) {
    sleep(Duration::from_millis(u64::from(ms)));
}

/// [`park_timeout`] in whole milliseconds, as [`sleep_ms`] is [`sleep`].
///
/// ```
/// # #[allow(deprecated)]
/// heist::thread::park_timeout_ms(1);
/// ```
#[deprecated = "use `heist::thread::park_timeout`"]
#[track_caller]
pub fn park_timeout_ms(ms: u32) {
    park_timeout(Duration::from_millis(u64::from(ms)));
}
