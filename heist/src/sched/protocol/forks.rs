//! The open forks of a goroutine: second branches that nobody runs yet.
//!
//! A list through the frames of the forks, from the oldest to the newest. The
//! owner, the goroutine, links a fork when it begins its first branch and unlinks
//! it afterwards, with plain stores. Others claim from the other end.
//!
//! ```text
//!  root ──next──▶ claimed ──▶ claimed ──▶ open ──▶ open ──▶ newest
//!                                ▲ head                       ▲ tail
//! ```
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | `tail` | the owner | the newest fork that is linked, or the root |
//! | `next` | the owner | the fork that was linked after this one; valid while that is linked |
//! | `head` | whoever holds the latch | the newest fork that was claimed, or the root; `BUSY` during a raid |
//! | `before` | whoever holds the latch | of a claimed fork, the one before it |
//!
//! Forks are claimed oldest first, so those that are claimed come before those
//! that are not. A claimed fork stays until its owner has asked who runs it
//! ([`Unlinked::Claimed`]); its frame does too.
//!
//! # Why a branch runs once
//!
//! The owner itself claims ([`Forks::promote`]) between a link and an unlink, so
//! only a *raid*, by another thread, can meet an unlink. The owner: store `tail` (the
//! fork is unlinked), light barrier, load `head`; if that is the fork or `BUSY`, it
//! takes the latch and looks again. The raider, with the latch: store `head = BUSY`,
//! heavy barrier, look at the list. The barriers forbid that both miss the other: an
//! unlink whose owner has not seen `BUSY` is seen by the raider, and every other one
//! waits for the latch. So what the raider finds linked stays, and it stores the claim
//! before it lets go of the latch.
//!
//! An owner that waits for the latch has already stored `tail`. If the fork that it
//! unlinks is open, the raider sees it as gone, and it is the owner's. If it is the
//! last one that was claimed, `tail` is the one `before` it, and nothing is open.
//!
//! A raid costs a heavy barrier, and is for owners that do not come to a fork: they
//! compute for long, or their thread is blocked in the kernel. All others are asked
//! (see `sched::forks`).

use crate::prim::atomic::{AtomicBool, AtomicPtr, Ordering, heavy_barrier, trusting_barrier};
use crate::prim::latch::Looks;
use crate::prim::mutant::{Mutant, is};
use std::mem::MaybeUninit;
use std::ptr;

/// What a fork has in the list.
#[derive(Debug)]
pub(crate) struct Link {
    next: Unset<Link>,
    before: Unset<Link>,
}

/// A pointer that is stored before it is loaded, by the protocol: a fork spares the
/// stores that would say so.
#[derive(Debug)]
pub(crate) struct Unset<T>(MaybeUninit<AtomicPtr<T>>);

impl<T> Unset<T> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        // The machines that watch every word want it to have a value.
        if cfg!(any(loom, sim)) {
            return Unset(MaybeUninit::new(AtomicPtr::new(ptr::null_mut())));
        }
        Unset(MaybeUninit::uninit())
    }

    fn null() -> Self {
        Unset(MaybeUninit::new(AtomicPtr::new(ptr::null_mut())))
    }

    #[inline(always)]
    fn word(&self) -> &AtomicPtr<T> {
        // SAFETY: a word of memory in which anything may be, for a reference that is
        // stored to, or loaded from once that has been done.
        unsafe { self.0.assume_init_ref() }
    }

    #[inline(always)]
    pub(crate) fn store(&self, value: *mut T, ordering: Ordering) {
        self.word().store(value, ordering);
    }

    /// Only what was stored.
    #[inline(always)]
    pub(crate) fn load(&self, ordering: Ordering) -> *mut T {
        self.word().load(ordering)
    }
}

/// A raid is going on.
const BUSY: *mut Link = ptr::without_provenance_mut(1);

impl Link {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Link { next: Unset::new(), before: Unset::new() }
    }
}

/// What an owner finds when it unlinks a fork.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Unlinked {
    /// Nobody has claimed it: the caller runs its second branch.
    Mine,
    /// Somebody has, and left word who.
    Claimed,
}

/// The list.
#[derive(Debug)]
pub(crate) struct Forks {
    tail: AtomicPtr<Link>,
    head: AtomicPtr<Link>,
    root: Link,
    latch: AtomicBool,
}

/// Whoever has the latch.
struct Latched<'a>(&'a Forks);

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `latch`.
        self.0.latch.store(false, Ordering::Release);
    }
}

impl Forks {
    /// A list that is not to be used before [`reset`](Self::reset).
    pub(crate) fn new() -> Self {
        Forks {
            tail: AtomicPtr::new(ptr::null_mut()),
            head: AtomicPtr::new(ptr::null_mut()),
            root: Link { next: Unset::null(), before: Unset::null() },
            latch: AtomicBool::new(false),
        }
    }

    /// An empty list, at the address where it stays.
    pub(crate) fn reset(&'static self) {
        let root = ptr::from_ref(&self.root).cast_mut();
        self.tail.store(root, Ordering::Relaxed);
        self.head.store(root, Ordering::Relaxed);
    }

    /// The owner links a fork. Returns its predecessor.
    ///
    /// # Safety
    ///
    /// The caller is the owner; the fork stays where it is, and is unlinked before
    /// those that were linked earlier.
    #[inline(always)]
    pub(crate) unsafe fn link(&self, link: *const Link) -> *mut Link {
        let link = link.cast_mut();
        let prev = self.tail.load(Ordering::Relaxed);
        // Release, both: pair with the acquires in `oldest`; who
        // claims the fork sees what is in it.
        // SAFETY: linked, so its frame is there; or the root.
        unsafe { &(*prev).next }.store(link, Ordering::Release);
        self.tail.store(link, Ordering::Release);
        prev
    }

    /// The owner unlinks its newest fork, with what [`link`](Self::link) returned.
    #[inline(always)]
    pub(crate) fn unlink(&self, link: *const Link, prev: *mut Link) -> Unlinked {
        // Release: as in `link`; who finds an earlier fork open by this store sees
        // what is in it.
        self.tail.store(prev, Ordering::Release);
        trusting_barrier();
        // Relaxed: whether it is claimed is asked again with the latch.
        let head = self.head.load(Ordering::Relaxed);
        if ptr::eq(head, link) || ptr::eq(head, BUSY) && !is(Mutant::UnlinkBlind) {
            return self.settle(link, prev);
        }
        Unlinked::Mine
    }

    #[cold]
    #[inline(never)]
    fn settle(&self, link: *const Link, prev: *mut Link) -> Unlinked {
        let _latched = self.latch();
        if !ptr::eq(self.head.load(Ordering::Relaxed), link) {
            return Unlinked::Mine; // the raid was for others, or for nothing
        }
        // What came before a claimed fork is claimed, too.
        self.head.store(prev, Ordering::Relaxed);
        Unlinked::Claimed
    }

    /// Whether there seems to be an open fork.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        ptr::eq(self.tail.load(Ordering::Acquire), self.head.load(Ordering::Acquire))
    }

    /// Claims the oldest open fork, by the owner, or by whoever has the owner while
    /// it does not run. `mark` is told which, and leaves word for its owner.
    #[must_use]
    pub(crate) fn promote(&self, mark: impl FnOnce(*mut Link)) -> bool {
        let _latched = self.latch();
        let head = self.head.load(Ordering::Relaxed);
        let Some(oldest) = self.oldest(head) else { return false };
        self.claim(oldest, head, mark);
        true
    }

    /// Claims the oldest open fork of an owner that may run, if `still` holds: that is
    /// looked at with the latch.
    #[must_use]
    pub(crate) fn raid(&self, still: impl FnOnce() -> bool, mark: impl FnOnce(*mut Link)) -> bool {
        let _latched = self.latch();
        if !still() {
            return false;
        }
        let head = self.head.load(Ordering::Relaxed);
        self.head.store(BUSY, Ordering::Relaxed);
        if !is(Mutant::RaidUnfenced) {
            heavy_barrier();
        }
        let Some(oldest) = self.oldest(head) else {
            self.head.store(head, Ordering::Relaxed);
            return false;
        };
        self.claim(oldest, head, mark);
        true
    }

    fn claim(&self, oldest: *mut Link, head: *mut Link, mark: impl FnOnce(*mut Link)) {
        // SAFETY: linked, and its owner needs the latch to leave it.
        unsafe { &(*oldest).before }.store(head, Ordering::Relaxed);
        mark(oldest);
        self.head.store(oldest, Ordering::Relaxed);
    }

    /// What a list is attached to changes only with the latch.
    pub(crate) fn with_latch<R>(&self, f: impl FnOnce() -> R) -> R {
        let _latched = self.latch();
        f()
    }

    /// The oldest open fork, after `head`.
    fn oldest(&self, head: *mut Link) -> Option<*mut Link> {
        // SAFETY: claimed, and its owner needs the latch to leave it; or the root.
        let head_link = unsafe { &*head };
        let tail = self.tail.load(Ordering::Acquire);
        if ptr::eq(tail, head) || ptr::eq(tail, head_link.before.load(Ordering::Relaxed)) {
            return None;
        }
        Some(head_link.next.load(Ordering::Acquire))
    }

    fn latch(&self) -> Latched<'_> {
        let mut looks = Looks::new();
        // Acquire: pairs with the release in `Latched`.
        while self
            .latch
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            looks.pause();
        }
        Latched(self)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::prim::latch;

    fn list() -> &'static Forks {
        let forks: &'static Forks = Box::leak(Box::new(Forks::new()));
        forks.reset();
        forks
    }

    /// sysmon lets frozen goroutines go then: one of them may have the latch.
    #[test]
    fn who_waits_too_long_for_the_latch_says_so() {
        let (forks, before) = (list(), latch::stuck());
        std::thread::scope(|scope| {
            forks.with_latch(|| {
                scope.spawn(|| forks.with_latch(|| ()));
                while latch::stuck() == before {
                    std::thread::yield_now();
                }
            });
        });
    }

    #[test]
    fn forks_are_claimed_oldest_first_and_unlinked_newest_first() {
        let forks = list();
        let links: [Link; 3] = std::array::from_fn(|_| Link::new());
        let mut before = Vec::new();
        for link in &links {
            // SAFETY: unlinked below, in order.
            before.push(unsafe { forks.link(link) });
        }
        for link in &links[..2] {
            assert!(forks.promote(|claimed| assert!(ptr::eq(claimed, link))));
        }
        assert!(!forks.is_empty());
        assert_eq!(forks.unlink(&links[2], before[2]), Unlinked::Mine);
        assert!(forks.is_empty());
        assert!(!forks.promote(|_| unreachable!()) && !forks.raid(|| true, |_| unreachable!()));
        assert_eq!(forks.unlink(&links[1], before[1]), Unlinked::Claimed);
        // Another one after a claimed one.
        // SAFETY: as above.
        let again = unsafe { forks.link(&links[1]) };
        assert!(!forks.raid(|| false, |_| unreachable!()));
        assert!(forks.raid(|| true, |claimed| assert!(ptr::eq(claimed, &links[1]))));
        assert_eq!(forks.unlink(&links[1], again), Unlinked::Claimed);
        assert_eq!(forks.unlink(&links[0], before[0]), Unlinked::Claimed);
        assert!(forks.is_empty());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;

    /// A fork whose frame is checked: it must not be looked into once it is gone.
    #[repr(C)]
    struct Frame {
        link: Link,
        alive: Plain<bool>,
        ran: AtomicU32,
    }

    impl Frame {
        fn leak() -> &'static Frame {
            let frame =
                Frame { link: Link::new(), alive: Plain::new(true), ran: AtomicU32::new(0) };
            Box::leak(Box::new(frame))
        }

        /// Its second branch runs.
        fn run(&self) {
            assert!(self.alive.get());
            self.ran.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn list() -> &'static Forks {
        let forks: &'static Forks = Box::leak(Box::new(Forks::new()));
        forks.reset();
        forks
    }

    /// Forks `depth` deep. `claimed` says, when a fork was, that whoever claimed it
    /// is done.
    fn recurse(forks: &'static Forks, depth: u32, claimed: &dyn Fn()) {
        let frame = Frame::leak();
        // SAFETY: unlinked below.
        let prev = unsafe { forks.link(&frame.link) };
        if depth > 1 {
            recurse(forks, depth - 1, claimed);
        }
        match forks.unlink(&frame.link, prev) {
            Unlinked::Mine => frame.run(),
            Unlinked::Claimed => claimed(),
        }
        frame.alive.set(false);
        assert_eq!(frame.ran.load(Ordering::Relaxed), 1, "each second branch runs once");
    }

    /// The raider runs what it claims under the latch here, so that a claimed fork is
    /// done when its owner hears of it.
    fn raid(forks: &'static Forks) -> bool {
        forks.raid(
            || true,
            |link| {
                // SAFETY: the link is a frame's first field, and the frames are leaked.
                unsafe { &*link.cast::<Frame>() }.run();
            },
        )
    }

    #[test]
    fn a_raid_against_unlink_and_another_link() {
        loom::model(|| {
            let forks = list();
            let raider = loom::thread::spawn(move || u32::from(raid(forks)));
            let heard = Arc::new(AtomicU32::new(0));
            let claimed = || drop(heard.fetch_add(1, Ordering::Relaxed));
            for _ in 0..2 {
                recurse(forks, 1, &claimed);
            }
            assert_eq!(raider.join().unwrap(), heard.load(Ordering::Relaxed));
            assert!(forks.is_empty());
        });
    }

    #[test]
    fn raids_against_a_nest() {
        loom::model(|| {
            let forks = list();
            let raider =
                loom::thread::spawn(move || u32::from(raid(forks)) + u32::from(raid(forks)));
            let heard = Arc::new(AtomicU32::new(0));
            let claimed = || drop(heard.fetch_add(1, Ordering::Relaxed));
            recurse(forks, 2, &claimed);
            assert_eq!(raider.join().unwrap(), heard.load(Ordering::Relaxed));
            assert!(forks.is_empty());
        });
    }

    /// The owner promotes while another raids.
    #[test]
    fn promotion_against_a_raid_and_unlink() {
        loom::model(|| {
            let forks = list();
            let raider = loom::thread::spawn(move || raid(forks));
            let (first, second) = (Frame::leak(), Frame::leak());
            // SAFETY: unlinked below.
            let (before, between) = unsafe { (forks.link(&first.link), forks.link(&second.link)) };
            let promoted = forks.promote(|link| {
                // SAFETY: as in `raid`.
                unsafe { &*link.cast::<Frame>() }.run();
            });
            let mut heard = 0;
            for (frame, prev) in [(second, between), (first, before)] {
                match forks.unlink(&frame.link, prev) {
                    Unlinked::Mine => frame.run(),
                    Unlinked::Claimed => heard += 1,
                }
                frame.alive.set(false);
                assert_eq!(frame.ran.load(Ordering::Relaxed), 1);
            }
            let raided = raider.join().unwrap();
            assert_eq!(u32::from(raided) + u32::from(promoted), heard);
        });
    }
}
