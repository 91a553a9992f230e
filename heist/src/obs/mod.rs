//! Looking inside: reads counters and states, changes nothing.
//!
//! | file | what |
//! |---|---|
//! | `dump.rs` | all goroutines: on a fatal error, a deadlock, SIGQUIT |
//! | `schedtrace.rs` | one line about the scheduler, in Go's shape; its Ps, Ms and Gs: from time to time, on a fatal error |

mod dump;
mod schedtrace;

use crate::sched::p::P;
use crate::sched::schedt::Sched;
use crate::sched::sysmon::Reports;
use std::time::Duration;

pub(crate) use dump::dump_to_string;

/// What the scheduler calls when something is to be reported.
pub(crate) fn reports() -> Reports {
    Reports { trace: schedtrace::print, dump: dump::print, dying: print_dying }
}

/// What is left of a process in an impossible state.
fn print_dying() {
    crate::prim::os::write_stderr(format!("{}\n", schedtrace::of_dying()).as_bytes());
    dump::print();
}

/// The switches in `HEISTDEBUG`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Debug {
    /// `schedtrace=ms`.
    pub(crate) schedtrace: Option<Duration>,
    /// `scheddetail=1`.
    pub(crate) scheddetail: bool,
    /// `tlsguard=0` or `1`.
    pub(crate) tlsguard: Option<bool>,
}

impl Debug {
    /// Reads the variable. What it does not know it says, and goes on: a
    /// misspelt switch must not stop a program.
    pub(crate) fn from_env(variable: Option<&str>) -> Debug {
        let (debug, unknown) = Debug::parse(variable.unwrap_or(""));
        if let Some(unknown) = unknown {
            eprintln!(
                "heist: HEISTDEBUG: '{unknown}' is not known;\n\t\
                 there are schedtrace=<milliseconds>, scheddetail=<0 or 1> and \
                 tlsguard=<0 or 1>"
            );
        }
        debug
    }

    fn parse(text: &str) -> (Debug, Option<&str>) {
        let mut debug = Debug::default();
        let mut unknown = None;
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match item.split_once('=').map(|(key, value)| (key, value.parse::<u64>())) {
                Some(("schedtrace", Ok(0))) => debug.schedtrace = None,
                Some(("schedtrace", Ok(ms))) => debug.schedtrace = Some(Duration::from_millis(ms)),
                Some(("scheddetail", Ok(on @ 0..=1))) => debug.scheddetail = on == 1,
                Some(("tlsguard", Ok(on @ 0..=1))) => debug.tlsguard = Some(on == 1),
                _ => unknown = Some(item),
            }
        }
        (debug, unknown)
    }
}

/// Counters of a runtime since its start. Each is exact, but they belong to
/// slightly different moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Goroutines spawned.
    pub spawned: u64,
    /// Goroutines that ended.
    pub finished: u64,
    /// Successful steals.
    pub steals: u64,
    /// Goroutines moved by them.
    pub stolen: u64,
    /// Searches that found nothing to steal.
    pub failed_steals: u64,
    /// Times that a local queue was full.
    pub overflows: u64,
    /// Times that a P went idle.
    pub parks: u64,
    /// Wake-ups for a lone runnext that prediction spared.
    pub spared_wakes: u64,
    /// Ps taken from goroutines that blocked their thread, or computed on.
    pub retakes: u64,
    /// Goroutines stopped on their thread because too many computed.
    pub freezes: u64,
    /// Times that a stack was searched for references to thread-locals (see
    /// [`Builder::tls_guard`](crate::Builder::tls_guard)).
    pub tls_searches: u64,
    /// Times that one was found, and the goroutine kept on its thread.
    pub tls_holds: u64,
    /// OS threads of the runtime, sysmon not counted.
    pub threads: usize,
}

/// The counters of a scheduler, added up.
pub(crate) fn stats(sched: &'static Sched) -> Stats {
    use crate::prim::atomic::Ordering;
    let sum = |f: fn(&P) -> u64| sched.ps_ever().map(f).sum::<u64>();
    Stats {
        spawned: sum(|p| p.counters.spawned.get()) + sched.foreign_spawned.load(Ordering::Relaxed),
        finished: sum(|p| p.counters.finished.get())
            + sched.foreign_finished.load(Ordering::Relaxed),
        steals: sum(|p| p.counters.steals.get()),
        stolen: sum(|p| p.counters.stolen.get()),
        failed_steals: sum(|p| p.counters.failed_steals.get()),
        overflows: sum(|p| p.counters.overflows.get()),
        parks: sum(|p| p.counters.parks.get()),
        spared_wakes: sum(|p| p.counters.spared_wakes.get()),
        retakes: sched.preemption.retakes.get(),
        freezes: sched.preemption.freezes.get(),
        tls_searches: sched.tls_searches.load(Ordering::Relaxed),
        tls_holds: sched.tls_holds.load(Ordering::Relaxed),
        threads: sched.shared.lock().threads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_and_unknown_ones_named() {
        assert_eq!(Debug::parse("").0, Debug::default());
        let (debug, unknown) = Debug::parse("schedtrace=250, scheddetail=1");
        assert_eq!(debug.schedtrace, Some(Duration::from_millis(250)));
        assert!(debug.scheddetail && unknown.is_none());
        assert_eq!(Debug::parse("schedtrace=0").0.schedtrace, None);
        assert_eq!(Debug::parse("tlsguard=1").0.tlsguard, Some(true));
        for bad in ["gctrace=1", "tlsguard=2", "schedtrace", "schedtrace=fast", "scheddetail=2"] {
            assert_eq!(Debug::parse(bad).1, Some(bad));
        }
    }
}
