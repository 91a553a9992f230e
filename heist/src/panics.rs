//! What a panicking goroutine prints.
//!
//! std's default hook names the thread, which says nothing about a goroutine.
//! So while the default hook is in place, a goroutine's panic is reported in the
//! same form with the goroutine's name and id. A hook of the program's own is
//! left alone and called for every panic, but for those of a test's own goroutine: libtest's
//! hook prints to what the thread has inherited, and an M's thread may have been started by
//! another test. Those are kept for the thread of the test, which prints them.

use crate::prim::lock::{Lock, Rank};
use crate::prim::thread;
use crate::sched::m;
use crate::sched::names;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send + 'static>;

/// Installs the hook, once in a process.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    // A thread that panics may not touch the hook; the next runtime will.
    if thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = panic::take_hook();
        // Taking again gives the default one, to compare with.
        let default = panic::take_hook();
        let ours = is_same(&before, &default);
        panic::set_hook(Box::new(move |info| match m::current_g() {
            // A closed standard error is no reason to abort.
            Some(g) if ours => drop(write!(std::io::stderr(), "{}", report(g.id(), info))),
            Some(g) if keep(g.id(), info) => {}
            _ => before(info),
        }));
    });
}

/// What goroutines of tests have to say, by their numbers.
static KEPT: Lock<BTreeMap<u64, String>> = Lock::new(Rank::Leaf, BTreeMap::new());

/// Keeps the reports of the goroutine that calls this, until the end of the test.
pub(crate) struct Kept {
    id: Lock<Option<u64>>,
}

impl Kept {
    pub(crate) const fn new() -> Kept {
        Kept { id: Lock::new(Rank::Leaf, None) }
    }

    /// By the goroutine.
    pub(crate) fn begin(&self) {
        let id = m::current_g().map(|g| g.id());
        if let Some(id) = id {
            KEPT.lock().insert(id, String::new());
        }
        *self.id.lock() = id;
    }
}

/// By the thread that waits for it: prints them.
impl Drop for Kept {
    fn drop(&mut self) {
        let id = self.id.lock().take();
        let kept = id.and_then(|id| KEPT.lock().remove(&id)).filter(|kept| !kept.is_empty());
        if let Some(kept) = kept {
            eprint!("{kept}");
        }
    }
}

/// Whether the report is kept for somebody.
fn keep(id: u64, info: &PanicHookInfo<'_>) -> bool {
    if !KEPT.lock().contains_key(&id) {
        return false;
    }
    let text = report(id, info);
    // Still there: its goroutine is here.
    KEPT.lock().entry(id).or_default().push_str(&text);
    true
}

/// Whether two hooks are the same function: both are zero-sized, so it is their
/// virtual tables that are compared.
#[allow(ambiguous_wide_pointer_comparisons)]
fn is_same(a: &Hook, b: &Hook) -> bool {
    size_of_val(&**a) == 0 && std::ptr::eq(&raw const **a, &raw const **b)
}

/// std's report, with a goroutine for the thread.
fn report(id: u64, info: &PanicHookInfo<'_>) -> String {
    let name = names::get(id);
    let name = name.as_deref().unwrap_or("<unnamed>");
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("Box<dyn Any>");
    // `Location` is always there for a panic; the option is for the future.
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    // One call, so that lines of several goroutines do not mix.
    let trace = Backtrace::capture();
    let more = match trace.status() {
        BacktraceStatus::Captured => format!("stack backtrace:\n{trace}"),
        _ => "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace".into(),
    };
    format!("\ngoroutine '{name}' ({id}) panicked at {place}:\n{message}\n{more}\n")
}
