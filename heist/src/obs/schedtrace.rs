//! The schedtrace line, in Go's shape, and the lines about each P, M and G.

use crate::prim::atomic::Ordering;
use crate::prim::lock::{Guard, Lock};
use crate::prim::{clock, os};
use crate::sched::g::{G, flag};
use crate::sched::g_pool;
use crate::sched::m::M;
use crate::sched::p::P;
use crate::sched::protocol::g_state::Status;
use crate::sched::schedt::{self, Sched};
use std::fmt::{Display, Write};
use std::ptr;

/// How a report reads what a lock guards.
#[derive(Clone, Copy)]
enum Look {
    /// It waits for the lock.
    Whole,
    /// It says `?` where it would have to wait, perhaps for the thread that reports.
    AtOnce,
}

impl Look {
    fn at<T>(self, lock: &Lock<T>) -> Option<Guard<'_, T>> {
        match self {
            Look::Whole => Some(lock.lock()),
            Look::AtOnce => lock.try_lock(),
        }
    }
}

/// Prints the line, and a line for each P, M and G if asked for.
pub(super) fn print(sched: &'static Sched, detail: bool) {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_line(&mut out, sched, Look::Whole);
    if detail {
        let _ = write_ps(&mut out, sched, Look::Whole);
        let ms = ms(sched, Look::Whole).unwrap_or_default();
        let _ = write_ms(&mut out, &ms);
        let _ = write_gs(&mut out, sched, &ms);
    }
    os::write_stderr(out.as_bytes());
}

/// The lines about the schedulers that are open, their Ps and their Ms, without waiting
/// for a lock: the process dies, perhaps of what it did under one.
pub(super) fn of_dying() -> String {
    let closed = |sched: &&Sched| sched.shared.try_lock().is_some_and(|shared| shared.closed);
    let mut out = String::new();
    for sched in schedt::all().filter(|sched| !closed(sched)) {
        let _ = write_line(&mut out, sched, Look::AtOnce);
        let _ = write_ps(&mut out, sched, Look::AtOnce);
        // Those that hold a P can be found without the lock as well.
        let ms = ms(sched, Look::AtOnce);
        let _ = write_ms(&mut out, &ms.unwrap_or_else(|| sched.ps().filter_map(P::m).collect()));
    }
    out
}

fn write_line(out: &mut String, sched: &'static Sched, look: Look) -> std::fmt::Result {
    // Go counts sysmon as a thread.
    let counts = look.at(&sched.shared).map(|shared| (shared.threads + 1, shared.idle_ms.len()));
    let (threads, idle_threads) = counts.unzip();
    let list = |f: fn(&'static P) -> u64| {
        sched.ps().map(f).fold(String::new(), |mut list, n| {
            let _ = write!(list, " {n}");
            list
        })
    };
    // needspinning is Go's field: here nobody leaves a search owing.
    writeln!(
        out,
        "SCHED {}ms: gomaxprocs={} idleprocs={} threads={} spinningthreads={} \
         needspinning=0 idlethreads={} runqueue={} [{} ] schedticks=[{} ]",
        clock::now().saturating_sub(sched.opened.load(Ordering::Relaxed)) / 1_000_000,
        sched.procs(),
        sched.idle.idle_ps(),
        known(threads),
        sched.idle.searching(),
        known(idle_threads),
        sched.runq_size.load(Ordering::Relaxed),
        list(|p| p.runq.len() as u64),
        list(|p| u64::from(p.tick())),
    )?;
    if let Some(reason) = look.at(&sched.stopped_for).and_then(|reason| *reason) {
        writeln!(out, "  the world stops: {}", reason.text())?;
    }
    Ok(())
}

fn write_ps(out: &mut String, sched: &'static Sched, look: Look) -> std::fmt::Result {
    for p in sched.ps() {
        let running = u8::from(!sched.idle_mask.contains(p.id));
        let timers = match look {
            Look::Whole => Some(p.timers.len()),
            // Their latch can be waited for only.
            Look::AtOnce => None,
        };
        writeln!(
            out,
            "  P{}: status={running} schedtick={} syscalltick=0 m={} runqsize={} gfreecnt={} \
             timerslen={}",
            p.id,
            p.tick(),
            number(p.m().map(|m| m.id)),
            p.runq.len(),
            p.free_gs(),
            known(timers),
        )?;
    }
    Ok(())
}

/// The Ms that have a thread; none are known if the lock is taken.
fn ms(sched: &'static Sched, look: Look) -> Option<Vec<&'static M>> {
    let shared = look.at(&sched.shared)?;
    let gone: Vec<u32> = shared.free_ms.iter().map(|m| m.id).collect();
    Some(shared.all_ms.iter().copied().filter(|m| !gone.contains(&m.id)).collect())
}

fn write_ms(out: &mut String, ms: &[&'static M]) -> std::fmt::Result {
    for m in ms {
        let g = m.curg();
        writeln!(
            out,
            "  M{}: p={} curg={} spinning={} blocked={} lockedg={}",
            m.id,
            number(m.holds().map(|p| p.id)),
            number(g.map(G::id)),
            m.searching(),
            m.holds().is_none(),
            number(g.filter(|g| g.has(flag::PINNED)).map(G::id)),
        )?;
    }
    Ok(())
}

fn write_gs(out: &mut String, sched: &'static Sched, ms: &[&'static M]) -> std::fmt::Result {
    let mut result = Ok(());
    g_pool::each_used(|g| {
        if g.runtime() == sched.slot() && result.is_ok() {
            let status = g.state.status();
            let reason = if status == Status::Waiting { g.wait().0.text() } else { "" };
            let runs = |m: &&&M| m.curg().is_some_and(|its| ptr::eq(its, g));
            let m = ms.iter().find(runs).map(|m| m.id);
            result = writeln!(
                out,
                "  G{}: status={}({reason}) m={} lockedm={}",
                g.id(),
                status as u32,
                number(m),
                number(m.filter(|_| g.has(flag::PINNED))),
            );
        }
    });
    result
}

/// An id, or that there is none.
fn number(id: Option<impl Display>) -> String {
    id.map_or_else(|| "nil".into(), |id| id.to_string())
}

/// A count, or that it could not be read.
fn known(count: Option<usize>) -> String {
    count.map_or_else(|| "?".into(), |count| count.to_string())
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::sched::m;

    #[test]
    fn a_dying_thread_that_has_the_lock_does_not_wait_for_it() {
        let runtime = crate::Builder::new().max_procs(3).build().unwrap();
        let (text, id) = runtime.run(|| {
            let m = m::current().unwrap();
            let _locked = m.sched.shared.lock();
            (of_dying(), m.curg().unwrap().id())
        });
        assert!(text.contains("gomaxprocs=3") && text.contains("threads=?"), "{text}");
        assert!(text.contains("  P2: status="), "{text}");
        // The one that runs this.
        assert!(text.contains(&format!(" curg={id} ")), "{text}");
    }
}
