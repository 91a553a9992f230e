//! The schedtrace line, in Go's shape.

use crate::prim::atomic::Ordering;
use crate::prim::clock;
use crate::sched::g::{G, flag};
use crate::sched::g_pool;
use crate::sched::m::M;
use crate::sched::protocol::g_state::Status;
use crate::sched::schedt::Sched;
use std::fmt::Write;
use std::ptr;

/// Prints the line, and a line for each P, M and G if asked for.
pub(super) fn print(sched: &'static Sched, detail: bool) {
    crate::prim::os::write_stderr(text(sched, detail).as_bytes());
}

fn text(sched: &'static Sched, detail: bool) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_line(&mut out, sched);
    if detail {
        let _ = write_detail(&mut out, sched);
    }
    out
}

fn write_line(out: &mut String, sched: &'static Sched) -> std::fmt::Result {
    let (threads, idle_threads) = {
        let shared = sched.shared.lock();
        // Go counts sysmon as a thread.
        (shared.threads + 1, shared.idle_ms.len())
    };
    let list = |f: fn(&'static crate::sched::p::P) -> u64| {
        sched.ps().map(f).fold(String::new(), |mut list, n| {
            let _ = write!(list, " {n}");
            list
        })
    };
    // needspinning is Go's field: here nobody leaves a search owing.
    writeln!(
        out,
        "SCHED {}ms: gomaxprocs={} idleprocs={} threads={threads} spinningthreads={} \
         needspinning=0 idlethreads={idle_threads} runqueue={} [{} ] schedticks=[{} ]",
        (clock::now() - sched.opened.load(Ordering::Relaxed)) / 1_000_000,
        sched.procs(),
        sched.idle.idle_ps(),
        sched.idle.searching(),
        sched.runq_size.load(Ordering::Relaxed),
        list(|p| p.runq.len() as u64),
        list(|p| u64::from(p.tick())),
    )
}

fn write_detail(out: &mut String, sched: &'static Sched) -> std::fmt::Result {
    let id = |m: Option<&'static M>| m.map_or_else(|| "nil".into(), |m| m.id.to_string());
    for p in sched.ps() {
        let running = u8::from(!sched.idle_mask.contains(p.id));
        writeln!(
            out,
            "  P{}: status={running} schedtick={} syscalltick=0 m={} runqsize={} gfreecnt={} \
             timerslen={}",
            p.id,
            p.tick(),
            id(p.m()),
            p.runq.len(),
            p.free_gs(),
            p.timers.len(),
        )?;
    }
    let ms = {
        let shared = sched.shared.lock();
        let gone: Vec<u32> = shared.free_ms.iter().map(|m| m.id).collect();
        shared.all_ms.iter().copied().filter(|m| !gone.contains(&m.id)).collect::<Vec<_>>()
    };
    for &m in &ms {
        let p = m.holds().map_or_else(|| "nil".into(), |p| p.id.to_string());
        let number = |g: Option<&G>| g.map_or_else(|| "nil".into(), |g| g.id().to_string());
        let (g, locked) = (m.curg(), m.curg().filter(|g| g.has(flag::PINNED)));
        let (g, locked): (String, String) = (number(g), number(locked));
        writeln!(
            out,
            "  M{}: p={p} curg={g} spinning={} blocked={} lockedg={locked}",
            m.id,
            m.searching(),
            m.holds().is_none(),
        )?;
    }
    let mut result = Ok(());
    g_pool::each_used(|g| {
        if g.runtime() == sched.slot() && result.is_ok() {
            let status = g.state.status();
            let reason = if status == Status::Waiting { g.wait().0.text() } else { "" };
            let runs = |m: &&'static M| m.curg().is_some_and(|its| ptr::eq(its, g));
            let locked = id(ms.iter().copied().find(runs).filter(|_| g.has(flag::PINNED)));
            result = writeln!(
                out,
                "  G{}: status={}({reason}) m=nil lockedm={locked}",
                g.id(),
                status as u32,
            );
        }
    });
    result
}
