//! The open forks of a goroutine: second branches that nobody runs yet.
//!
//! A list through the frames of the forks, from the newest to the oldest. The
//! owner, the goroutine, links a fork when it begins its first branch and unlinks
//! it afterwards, with plain stores. Others claim from the other end.
//!
//! ```text
//!  NONE ◀──prev── claimed ◀── claimed ◀── open ◀── open ◀── open ◀── newest
//!                                ▲ head    ▲ oldest  ▲ mark           ▲ tail
//! ```
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | `tail` | the owner | the newest fork that is linked, or `NONE` |
//! | `prev` | the owner | of a linked fork, the one that was linked before it, or `NONE` |
//! | `mark` | whoever holds the latch | the owner takes the latch to unlink this fork; never older than `head`; `BUSY` during a raid: to unlink any |
//! | `head` | whoever holds the latch | the newest fork that was claimed, or `NONE` |
//! | `oldest`, `next` | whoever holds the latch | the way from the oldest open fork to the mark, if that is not `head` |
//!
//! Forks are claimed oldest first, so those that are claimed come before those
//! that are not. A claimed fork stays until its owner has asked who runs it
//! ([`Unlinked::Claimed`]); its frame does too.
//!
//! # Why a branch runs once
//!
//! The owner itself claims ([`Forks::promote`]) between a link and an unlink, so
//! only a *raid*, by another thread, can meet an unlink. The owner: store `tail` (the
//! fork is unlinked), light barrier, load `mark`; if that is the fork or `BUSY`, it
//! takes the latch and looks again. The raider, with the latch: store `mark = BUSY`,
//! heavy barrier, look at the list. The barriers forbid that both miss the other: an
//! unlink whose owner has not seen `BUSY` is seen by the raider, and every other one
//! waits for the latch. So what the raider finds linked stays, and it stores the claim
//! before it lets go of the latch.
//!
//! An owner that waits for the latch has already stored `tail`. If the fork that it
//! unlinks is open, the raider sees it as gone, or claims it; the owner hears which with the
//! latch. If it is the last one that was claimed, `tail` is the one before it, and
//! nothing is open.
//!
//! # Why claims are cheap, however deep the list is
//!
//! The oldest open fork is found from the newest, over `k` open ones. On the way back they
//! get their `next`, and the mark is set to the middle one: as long as it stays there, so have
//! all older ones, and the next claims go from `next` to `next`. The owner takes the mark back to
//! `head` when it unlinks that fork. So before there is another walk, `k / 2` forks have
//! been claimed or unlinked, which pays for it.
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
    prev: Unset<Link>,
    next: Unset<Link>,
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

/// A raid is going on. Below all forks.
const BUSY: *mut Link = ptr::without_provenance_mut(1);
/// No fork. Above all of them.
const NONE: *mut Link = ptr::without_provenance_mut(usize::MAX);

impl Link {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Link { prev: Unset::new(), next: Unset::new() }
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
    mark: AtomicPtr<Link>,
    head: AtomicPtr<Link>,
    oldest: AtomicPtr<Link>,
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
    pub(crate) fn new() -> Self {
        Forks {
            tail: AtomicPtr::new(NONE),
            mark: AtomicPtr::new(NONE),
            head: AtomicPtr::new(NONE),
            oldest: AtomicPtr::new(NONE),
            latch: AtomicBool::new(false),
        }
    }

    /// The owner links a fork.
    ///
    /// # Safety
    ///
    /// The caller is the owner; the fork stays where it is, and is unlinked before
    /// those that were linked earlier.
    #[inline(always)]
    pub(crate) unsafe fn link(&self, link: &Link) {
        // Relaxed, both: the owner's.
        link.prev.store(self.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: pairs with the acquire in `walk`; who claims the fork sees what is in it.
        self.tail.store(ptr::from_ref(link).cast_mut(), Ordering::Release);
    }

    /// The owner unlinks its newest fork.
    #[inline(always)]
    pub(crate) fn unlink(&self, link: &Link) -> Unlinked {
        // Release: as in `link`; who finds an earlier fork open by this store sees
        // what is in it.
        self.tail.store(link.prev.load(Ordering::Relaxed), Ordering::Release);
        trusting_barrier();
        // Relaxed: whether it is claimed is asked again with the latch. One comparison for
        // the fork and `BUSY`: stacks grow down, so a mark on an older fork is above this one,
        // unless that is on another segment of the stack.
        let mark = self.mark.load(Ordering::Relaxed);
        if mark.addr() <= ptr::from_ref(link).addr() {
            return self.settle(link, mark);
        }
        Unlinked::Mine
    }

    #[cold]
    #[inline(never)]
    fn settle(&self, link: &Link, mark: *mut Link) -> Unlinked {
        let raided = ptr::eq(mark, BUSY) && !is(Mutant::UnlinkBlind);
        if !ptr::eq(mark, link) && !raided {
            return Unlinked::Mine; // it is on another segment
        }
        let _latched = self.latch();
        if !ptr::eq(self.mark.load(Ordering::Relaxed), link) {
            return Unlinked::Mine; // the raid was for others, or for nothing
        }
        let mut head = self.head.load(Ordering::Relaxed);
        let claimed = ptr::eq(head, link);
        if claimed {
            // What came before a claimed fork is claimed, too.
            head = link.prev.load(Ordering::Relaxed);
            self.head.store(head, Ordering::Relaxed);
        }
        // The way to a mark that goes away goes through forks that may.
        if claimed || !is(Mutant::KeepMark) {
            self.mark.store(head, Ordering::Relaxed);
        }
        if claimed { Unlinked::Claimed } else { Unlinked::Mine }
    }

    /// Whether there seems to be an open fork.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        ptr::eq(self.tail.load(Ordering::Acquire), self.head.load(Ordering::Acquire))
    }

    /// Claims the oldest open fork, by the owner, or by whoever has the owner while
    /// it does not run. `tell` is told which, and leaves word for its owner.
    #[must_use]
    pub(crate) fn promote(&self, tell: impl FnOnce(*mut Link)) -> bool {
        let _latched = self.latch();
        self.claim(self.mark.load(Ordering::Relaxed), tell)
    }

    /// Claims the oldest open fork of an owner that may run, if `still` holds: that is
    /// looked at with the latch.
    #[must_use]
    pub(crate) fn raid(&self, still: impl FnOnce() -> bool, tell: impl FnOnce(*mut Link)) -> bool {
        let _latched = self.latch();
        if !still() {
            return false;
        }
        let mark = self.mark.load(Ordering::Relaxed);
        self.mark.store(BUSY, Ordering::Relaxed);
        if !is(Mutant::RaidUnfenced) {
            heavy_barrier();
        }
        self.claim(mark, tell)
    }

    /// With the latch; ends a raid.
    fn claim(&self, mut mark: *mut Link, tell: impl FnOnce(*mut Link)) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if ptr::eq(mark, head) {
            mark = self.walk(head);
        }
        let some = !ptr::eq(mark, head);
        if some {
            let oldest = self.oldest.load(Ordering::Relaxed);
            tell(oldest);
            if !ptr::eq(oldest, mark) {
                // SAFETY: older than the mark, so its owner needs the latch to leave it.
                let next = unsafe { &(*oldest).next }.load(Ordering::Relaxed);
                self.oldest.store(next, Ordering::Relaxed);
            }
            self.head.store(oldest, Ordering::Relaxed);
        }
        self.mark.store(mark, Ordering::Relaxed);
        some
    }

    /// Finds the oldest open fork, and the way from there to the middle one, which it returns;
    /// `head`, if nothing is open.
    fn walk(&self, head: *mut Link) -> *mut Link {
        // SAFETY: an open fork, or the claimed one at `head`: whoever calls has seen to it that
        // those stay.
        let prev = |link: *mut Link| unsafe { &(*link).prev }.load(Ordering::Relaxed);
        // Acquire: pairs with the releases in `link` and `unlink`.
        let tail = self.tail.load(Ordering::Acquire);
        // The second: its owner waits for the latch to leave it.
        if ptr::eq(tail, head) || !ptr::eq(head, NONE) && ptr::eq(tail, prev(head)) {
            return head;
        }
        // `middle` makes one step for two of `oldest`, so it is as far from both ends.
        let (mut oldest, mut middle, mut steps) = (tail, tail, 0_usize);
        loop {
            let before = prev(oldest);
            if ptr::eq(before, head) {
                break;
            }
            // SAFETY: as above.
            unsafe { &(*before).next }.store(oldest, Ordering::Relaxed);
            oldest = before;
            if steps % 2 == 0 {
                middle = prev(middle);
            }
            steps += 1;
        }
        self.oldest.store(oldest, Ordering::Relaxed);
        middle
    }

    /// What a list is attached to changes only with the latch.
    pub(crate) fn with_latch<R>(&self, f: impl FnOnce() -> R) -> R {
        let _latched = self.latch();
        f()
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
        Box::leak(Box::new(Forks::new()))
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
        for link in &links {
            // SAFETY: unlinked below, in order.
            unsafe { forks.link(link) };
        }
        for link in &links[..2] {
            assert!(forks.promote(|claimed| assert!(ptr::eq(claimed, link))));
        }
        assert!(!forks.is_empty());
        assert_eq!(forks.unlink(&links[2]), Unlinked::Mine);
        assert!(forks.is_empty());
        assert!(!forks.promote(|_| unreachable!()) && !forks.raid(|| true, |_| unreachable!()));
        assert_eq!(forks.unlink(&links[1]), Unlinked::Claimed);
        // Another one after a claimed one.
        // SAFETY: as above.
        unsafe { forks.link(&links[1]) };
        assert!(!forks.raid(|| false, |_| unreachable!()));
        assert!(forks.raid(|| true, |claimed| assert!(ptr::eq(claimed, &links[1]))));
        assert_eq!(forks.unlink(&links[1]), Unlinked::Claimed);
        assert_eq!(forks.unlink(&links[0]), Unlinked::Claimed);
        assert!(forks.is_empty());
    }

    /// However the claims, links and unlinks alternate: the oldest open fork is claimed, and
    /// each fork's owner hears whether it was.
    #[test]
    fn claims_follow_the_list_whatever_its_owner_does() {
        let rng = crate::prim::rng::Rng::new(7);
        let forks = list();
        let mut linked: Vec<(Box<Link>, bool)> = Vec::new();
        for _ in 0..20_000 {
            match rng.next() % 7 {
                0..3 => {
                    let link = Box::new(Link::new());
                    // SAFETY: unlinked below, or leaked with its list.
                    unsafe { forks.link(&link) };
                    linked.push((link, false));
                }
                3..5 => {
                    if let Some((link, claimed)) = linked.pop() {
                        assert_eq!(forks.unlink(&link) == Unlinked::Claimed, claimed);
                    }
                }
                _ => {
                    let oldest = linked.iter_mut().find(|(_, claimed)| !claimed);
                    let mut told = None;
                    assert_eq!(forks.promote(|link| told = Some(link)), oldest.is_some());
                    if let Some((link, claimed)) = oldest {
                        assert!(ptr::eq(told.unwrap(), &raw const **link));
                        *claimed = true;
                    }
                }
            }
        }
        while let Some((link, claimed)) = linked.pop() {
            assert_eq!(forks.unlink(&link) == Unlinked::Claimed, claimed);
        }
    }

    /// All forks of a deep list are claimed in as many steps, and some.
    #[test]
    fn a_deep_list_is_walked_twice_at_most() {
        const DEPTH: usize = 1 << 16;
        let forks = list();
        let links: Vec<Link> = (0..DEPTH).map(|_| Link::new()).collect();
        for link in &links {
            // SAFETY: leaked with its list.
            unsafe { forks.link(link) };
        }
        let (mut steps, mut left) = (0, DEPTH);
        while left != 0 {
            if ptr::eq(forks.mark.load(Ordering::Relaxed), forks.head.load(Ordering::Relaxed)) {
                steps += left;
            }
            assert!(forks.promote(|_| ()));
            left -= 1;
        }
        assert!(steps <= 2 * DEPTH, "{steps} steps");
        assert!(!forks.promote(|_| unreachable!()));
        std::mem::forget(links);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use crate::prim::mutant::must_fail;
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
        Box::leak(Box::new(Forks::new()))
    }

    /// Forks `depth` deep. `claimed` says, when a fork was, that whoever claimed it
    /// is done.
    fn recurse(forks: &'static Forks, depth: u32, claimed: &dyn Fn()) {
        let frame = Frame::leak();
        // SAFETY: unlinked below.
        unsafe { forks.link(&frame.link) };
        if depth > 1 {
            recurse(forks, depth - 1, claimed);
        }
        leave(forks, frame, claimed);
    }

    /// The first branch of a fork is done.
    fn leave(forks: &'static Forks, frame: &'static Frame, claimed: &dyn Fn()) {
        match forks.unlink(&frame.link) {
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
            let claimed = || _ = heard.fetch_add(1, Ordering::Relaxed);
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
            let claimed = || _ = heard.fetch_add(1, Ordering::Relaxed);
            recurse(forks, 2, &claimed);
            assert_eq!(raider.join().unwrap(), heard.load(Ordering::Relaxed));
            assert!(forks.is_empty());
        });
    }

    /// Three forks, of which the owner promotes the first: the mark is on the second. Then it
    /// leaves that one, and links others, while a raider goes the way that it knows.
    fn marked() {
        let forks = list();
        let frames = [Frame::leak(), Frame::leak(), Frame::leak()];
        for frame in frames {
            // SAFETY: unlinked below.
            unsafe { forks.link(&frame.link) };
        }
        // SAFETY: as in `raid`.
        assert!(forks.promote(|link| unsafe { &*link.cast::<Frame>() }.run()));
        let raider = loom::thread::spawn(move || u32::from(raid(forks)));
        let heard = Arc::new(AtomicU32::new(0));
        let claimed = || _ = heard.fetch_add(1, Ordering::Relaxed);
        let [first, second, third] = frames;
        for frame in [third, second] {
            leave(forks, frame, &claimed);
        }
        recurse(forks, 1, &claimed);
        leave(forks, first, &claimed);
        assert_eq!(raider.join().unwrap() + 1, heard.load(Ordering::Relaxed));
        assert!(forks.is_empty() && !raid(forks));
    }

    #[test]
    fn a_raid_against_unlinking_the_mark() {
        loom::model(marked);
    }

    #[test]
    fn the_models_see_mistakes() {
        must_fail(Mutant::KeepMark, marked);
        must_fail(Mutant::UnlinkBlind, marked);
        must_fail(Mutant::RaidUnfenced, marked);
    }

    /// The owner promotes while another raids.
    #[test]
    fn promotion_against_a_raid_and_unlink() {
        loom::model(|| {
            let forks = list();
            let raider = loom::thread::spawn(move || raid(forks));
            let (first, second) = (Frame::leak(), Frame::leak());
            // SAFETY: unlinked below.
            unsafe { (forks.link(&first.link), forks.link(&second.link)) };
            let promoted = forks.promote(|link| {
                // SAFETY: as in `raid`.
                unsafe { &*link.cast::<Frame>() }.run();
            });
            let mut heard = 0;
            for frame in [second, first] {
                match forks.unlink(&frame.link) {
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
