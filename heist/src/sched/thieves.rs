//! Who has nothing to do asks those who fork.
//!
//! A thief that finds the queues empty asks a goroutine that forks for a branch, and
//! looks at the queues for some microseconds more. A goroutine that does not
//! answer, since it computes without forking or is blocked in the kernel, is
//! raided. Before an M sleeps it asks some of them; whoever answers wakes it. And
//! sysmon asks and raids for those who sleep; now and then also while nobody does, since
//! one that computes may wait for what another branch of its own does. Who loses its P
//! while it forks is raided at once: others may have its branches as they have its P.
//!
//! In a runtime where nobody forks all this is a load and a comparison.

use super::branches;
use super::desk::Ask;
use super::g::G;
use super::m::M;
use super::p::Held;
use super::schedt::Sched;
use super::steal;
use crate::prim::atomic::{Ordering, barriers_available};
use crate::prim::{clock, hint};
use std::ptr;

/// How long a thief waits for an answer: a goroutine that forks answers within its
/// next branch, if that is short. Waking a thread costs more than this.
const PATIENCE: u64 = 20_000;

/// How many are asked by one who goes to sleep, and how many branches are taken at once.
const MOST: usize = 8;

/// Whether any goroutine forks.
#[inline(always)]
pub(super) fn anybody(sched: &Sched) -> bool {
    sched.forking.load(Ordering::Relaxed) != 0
}

/// The Ms of the other Ps, from a random one on.
fn others(sched: &'static Sched, thief: Held) -> impl Iterator<Item = &'static M> {
    let procs = sched.procs();
    let start = thief.random() % procs;
    (0..procs)
        .map(move |i| sched.p((start + i) % procs))
        .filter(move |p| !ptr::eq(*p, thief.get()))
        .filter_map(|p| p.m())
}

/// A branch of somebody's, for a thief that has found nothing else.
pub(super) fn beg(sched: &'static Sched, thief: Held) -> Option<&'static G> {
    if !anybody(sched) {
        return None;
    }
    let asked = others(sched, thief).any(|m| m.desk.ask() != Ask::Nobody);
    if !asked {
        return None;
    }
    let until = clock::now() + PATIENCE;
    while clock::now() < until {
        for _ in 0..8 {
            hint::spin_loop();
        }
        if sched.closing() || sched.runq_size.load(Ordering::Relaxed) != 0 {
            return None;
        }
        if let Some(g) = steal::from_rings(sched, thief) {
            steal::note_steal(sched, thief);
            return Some(g);
        }
    }
    if !barriers_available() {
        return None;
    }
    others(sched, thief)
        .filter_map(|m| m.desk.silent())
        .find_map(|list| branches::raid(list, sched, Some(thief)))
}

/// The caller's M goes to sleep, its P is idle, and it has passed a full fence: whoever
/// forks is to wake it.
#[inline]
pub(super) fn ask_before_sleep(sched: &'static Sched) {
    // After the fence: see `forks::approach`.
    if sched.forking.load(Ordering::SeqCst) != 0 {
        ask_some(sched);
    }
}

#[cold]
fn ask_some(sched: &'static Sched) {
    let ms = sched.ps().filter_map(|p| p.m());
    ms.filter(|m| m.desk.ask() == Ask::Asked).take(MOST).for_each(drop);
}

/// What sysmon's beat came to, the most that it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub(super) enum Beat {
    /// Nobody forks, or those who were asked have nothing to share.
    Nothing,
    Asked,
    /// There is a branch for whoever is idle.
    Raided,
}

/// sysmon's beat: asks everybody who forks, and raids those who were asked before. If
/// nobody is idle it only wants to hear from them: a branch that whoever forks shared for
/// nobody would lie in its queue like somebody's work, for which it then loses its P, and two
/// threads compute for one P (quicksort on one P took up to a third longer).
pub(super) fn beat(sched: &'static Sched, somebody_idle: bool) -> Beat {
    // Also those that have lost their P.
    let all = sched.shared.lock().all_ms.clone();
    let ask = |m: &'static M| if somebody_idle { m.desk.ask() } else { m.desk.probe() };
    let of = |m: &'static M| match ask(m) {
        Ask::Nobody => Beat::Nothing,
        Ask::Asked => Beat::Asked,
        Ask::Before if raid(sched, m) => Beat::Raided,
        Ask::Before => Beat::Nothing,
    };
    all.into_iter().map(of).fold(Beat::Nothing, Beat::max)
}

/// A goroutine has lost its P to others: they may have some of its branches, too. The rest
/// is sysmon's to share, beat by beat.
pub(super) fn share_of_loser(sched: &'static Sched, m: &'static M) {
    if m.desk.is_open() {
        let (Ask::Nobody | Ask::Asked | Ask::Before) = m.desk.ask();
        for _ in 0..MOST {
            if !raid(sched, m) {
                break;
            }
        }
    }
}

/// Queues a branch of a goroutine that was asked and has not answered. False if it has
/// none.
fn raid(sched: &'static Sched, m: &'static M) -> bool {
    if !barriers_available() {
        return false;
    }
    let node = m.desk.silent().and_then(|list| branches::raid(list, sched, None));
    node.is_some_and(|node| {
        super::wake::inject(sched, sched.life(), node);
        true
    })
}
