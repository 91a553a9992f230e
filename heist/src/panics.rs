//! What a panicking goroutine prints.
//!
//! std's default hook names the thread, which says nothing about a goroutine.
//! So while the default hook is in place, a goroutine's panic is reported in the
//! same form with the goroutine's name and id. A hook of the program's own is
//! left alone and called for every panic.

use crate::prim::thread;
use crate::sched::m;
use crate::sched::names;
use std::backtrace::{Backtrace, BacktraceStatus};
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
            Some(g) if ours => report(g.id(), info),
            _ => before(info),
        }));
    });
}

/// Whether two hooks are the same function: both are zero-sized, so it is their
/// virtual tables that are compared.
#[allow(ambiguous_wide_pointer_comparisons)]
fn is_same(a: &Hook, b: &Hook) -> bool {
    size_of_val(&**a) == 0 && std::ptr::eq(&raw const **a, &raw const **b)
}

/// std's report, with a goroutine for the thread.
fn report(id: u64, info: &PanicHookInfo<'_>) {
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
    // A closed standard error is no reason to abort.
    let _ = writeln!(
        std::io::stderr(),
        "\ngoroutine '{name}' ({id}) panicked at {place}:\n{message}\n{more}"
    );
}
