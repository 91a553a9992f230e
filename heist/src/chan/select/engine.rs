//! How a select goes about it.
//!
//! 1. It tries its cases one after the other, in random order: if one is ready,
//!    that is all, and costs one latch. If none is, and a few others are about to
//!    run here, it lets them and tries again: they are often those it waits for, and
//!    what they have left by then needs no waiting (four producers without buffers
//!    and their consumer on one P: 200 ns for a message, and so less than half).
//! 2. If none was, it takes the latches of all its channels, in the order of
//!    their addresses, and looks again: now nothing can change meanwhile, so a
//!    select that finds nothing was right about all of them at one moment.
//! 3. It joins the queues of all of them, with one [`Turn`] for all its places,
//!    gives the latches back and sleeps. Of those who want to end its wait, the
//!    one that wins the turn does.
//! 4. It leaves the queues where it still stands.
//!
//! [`Turn`]: crate::sched::waiter::Turn

use super::super::channel::{Place, Site, Who};
use super::super::error::{RecvError, SendError};
use super::super::large::{is_huge, with_room_for};
use super::super::protocol::queue::{Chain, Claimed, Outcome};
use super::super::protocol::state::Room;
use super::super::receiver::Receiver;
use super::super::sender::Sender;
use super::super::until::Until;
use super::landing::Landing;
use super::operation::{Attempt, Operation, Token};
use crate::prim::fatal::fatal;
use crate::prim::latch::{Taken, Words};
use crate::prim::rng;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::waiter::{Slept, Waiter};
use std::time::Instant;

/// So many cases need no memory but the stack's.
const FEW: usize = 8;

/// How often a select gives way before it waits. Once is not enough: now and then one
/// that yields is back before the others.
const GIVES_WAY: u32 = 2;

/// A case of a select.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The sender or the receiver.
    operation: &'a dyn Operation,
    /// Its channel's, if it has one.
    latch: Option<&'a Words>,
    index: usize,
    sends: bool,
    /// What it receives needs memory of its own.
    large: bool,
    /// And more of a stack than there may be.
    huge: bool,
}

// SAFETY: the handles are `Sync`, if they are anybody else's.
unsafe impl Send for Case<'_> {}
// SAFETY: as above.
unsafe impl Sync for Case<'_> {}

impl<'a> Case<'a> {
    /// Sends.
    #[inline]
    pub fn send<T>(sender: &'a Sender<T>, index: usize) -> Self {
        let (operation, latch) = (sender as &dyn Operation, sender.latch());
        Case { operation, latch, index, sends: true, large: false, huge: false }
    }

    /// Receives.
    #[inline]
    pub fn recv<T>(receiver: &'a Receiver<T>, index: usize) -> Self {
        let large = const { Landing::is_large(std::alloc::Layout::new::<T>()) };
        let huge = const { is_huge::<T>() };
        Case { operation: receiver, latch: receiver.latch(), index, sends: false, large, huge }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    #[inline]
    fn slot(&self, landing: &mut Landing) -> *mut () {
        if self.large {
            landing.make_room(self.operation.layout());
        }
        landing.slot(self.large)
    }

    /// The slot of one who waits: a sender has no message yet.
    #[inline]
    fn waiting_slot(&self, landing: &mut Landing) -> *mut () {
        if self.sends { std::ptr::null_mut() } else { self.slot(landing) }
    }

    /// When it becomes ready by itself: what has a channel never does.
    #[inline]
    fn moment(&self) -> Option<Instant> {
        if self.latch.is_some() { None } else { self.operation.moment() }
    }
}

/// A case that was selected, and is to be completed.
pub struct Chosen<'a> {
    case: Case<'a>,
    token: Token,
}

impl Chosen<'_> {
    /// Which one.
    #[inline]
    pub fn index(&self) -> usize {
        self.case.index
    }

    /// Whether a message has landed.
    pub(super) fn has_message(&self) -> bool {
        matches!(self.token, Token::Message)
    }

    /// Sends the message.
    pub(super) fn send<T>(self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        match self.token {
            Token::Room(room) => sender.channel.complete(room, message).map_err(SendError),
            _ => fatal!("a select has received and completes a send"),
        }
    }

    /// Takes the message.
    ///
    /// # Safety
    ///
    /// `T` is that of the receiver that was selected, and the landing that of the
    /// select.
    pub(super) unsafe fn recv<T>(self, landing: &mut Landing) -> Result<T, RecvError> {
        match self.token {
            // SAFETY: it has landed, and is taken once.
            Token::Message => Ok(unsafe { landing.slot(self.case.large).cast::<T>().read() }),
            _ => Err(RecvError),
        }
    }

    /// Whether this sender or receiver is the one that was selected. If so, its
    /// messages are of the type that the operation knows.
    pub(super) fn is_of<H>(&self, handle: &H) -> bool {
        std::ptr::from_ref(self.case.operation).cast::<()>() == std::ptr::from_ref(handle).cast()
    }

    /// It is not going to be completed.
    ///
    /// # Safety
    ///
    /// The landing is that of the select.
    pub(super) unsafe fn abandon(self, landing: &mut Landing) {
        let slot = landing.slot(self.case.large);
        // SAFETY: the token is the operation's, and a message has landed there.
        unsafe { self.case.operation.abandon(self.token, slot) };
    }
}

/// Selects a case, or none if the time is up.
pub(super) fn select<'a>(
    cases: &mut [Case<'a>],
    until: Until,
    biased: bool,
    landing: &mut Landing,
    site: Site,
) -> Option<Chosen<'a>> {
    park::wait_point();
    if cases.is_empty() {
        sleep_without_cases(until, site);
        return None;
    }
    let mut gave_way = 0;
    loop {
        let mut order = Draw::new(biased);
        for i in 0..cases.len() {
            let case = order.next(cases, i);
            let slot = case.slot(landing);
            // SAFETY: no latch is taken; the slot is for its messages.
            let token = unsafe { case.operation.try_alone(slot, site) };
            if let Some(token) = token {
                return Some(Chosen { case: *case, token });
            }
        }
        if gave_way == GIVES_WAY {
            park::gave_way_in_vain();
        } else if !matches!(until, Until::Now) && park::give_way_to_few() {
            gave_way += 1;
            continue;
        }
        order.shuffle(cases);
        let waited = if cases.iter().any(|case| case.huge) {
            wait_elsewhere(cases, until, landing, site)
        } else {
            wait(cases, until, landing, site)
        };
        match waited {
            Waited::Selected(chosen) => return Some(chosen),
            Waited::Over => return None,
            Waited::Again => {}
        }
    }
}

/// What came of the second look, and of the wait.
enum Waited<'a> {
    Selected(Chosen<'a>),
    Over,
    Again,
}

/// [`wait`] on a stack with room for whichever message comes. With latches it would be
/// too late to make one.
#[cold]
#[inline(never)]
fn wait_elsewhere<'a>(
    cases: &[Case<'a>],
    until: Until,
    landing: &mut Landing,
    site: Site,
) -> Waited<'a> {
    let sizes = cases.iter().map(|case| case.operation.layout().size());
    with_room_for(sizes.max().unwrap_or(0), || wait(cases, until, landing, site))
}

/// Steps 2 to 4.
#[inline(always)] // as `park::yield_now`
fn wait<'a>(cases: &[Case<'a>], until: Until, landing: &mut Landing, site: Site) -> Waited<'a> {
    if matches!(until, Until::Now) && cases.len() == 1 {
        park::poll_point();
        return Waited::Over;
    }
    let mut latches = Latches::new();
    latches.acquire(cases);
    if let Some((case, attempt)) = attempt_all(cases, landing) {
        drop(latches);
        let slot = case.slot(landing);
        // SAFETY: the attempt was made with this operation and this slot.
        let token = unsafe { case.operation.finish(attempt, slot, site) };
        return token.map_or(Waited::Again, |token| Waited::Selected(Chosen { case, token }));
    }
    let deadline = until.clock();
    if until.is_over(deadline) {
        drop(latches);
        park::poll_point();
        return Waited::Over;
    }
    let deadline = earliest(cases, deadline);
    let turn = Waiter::current().begin();
    let mut places = Places::new();
    let places =
        places.fill(cases, |case| Place::new(Who::OneOfMany(turn), case.waiting_slot(landing)));
    // SAFETY: the latches are taken; this function does not return before the
    // places have left. The slots are for the messages.
    let wakes = unsafe { join(cases, places, false) };
    drop(latches);
    wakes.wake();
    let slept = turn.sleep(deadline, WaitReason::Select, site);
    match leave(cases, places, false) {
        Some((case, place)) => won(case, place),
        None if slept == Slept::Unwind => park::unwind(),
        None => Waited::Again,
    }
}

/// The first case that is ready, with all latches taken.
fn attempt_all<'a>(cases: &[Case<'a>], landing: &mut Landing) -> Option<(Case<'a>, Attempt)> {
    cases.iter().find_map(|case| {
        let slot = case.slot(landing);
        // SAFETY: the caller has the latches; the slot is for its messages.
        match unsafe { case.operation.attempt(slot) } {
            Attempt::NotReady => None,
            attempt => Some((*case, attempt)),
        }
    })
}

/// The wait of a select was ended by this case.
fn won<'a>(case: Case<'a>, place: &Place) -> Waited<'a> {
    let token = match (case.sends, place.outcome()) {
        (false, Outcome::Done) => Token::Message,
        (false, Outcome::Disconnected) => Token::Disconnected,
        (false, Outcome::Retry) => return Waited::Again,
        (true, Outcome::Done) => Token::Room(Room::Reserved),
        (true, Outcome::Disconnected) => Token::Room(Room::Disconnected),
        (true, Outcome::Paired) => {
            // SAFETY: a receiver left its record here and sleeps until its
            // message comes.
            let receiver = unsafe { Claimed::from_raw(place.slot().cast_const().cast()) };
            Token::Room(Room::Partner(receiver))
        }
        (_, other) => fatal!("a select woke to {other:?}"),
    };
    Waited::Selected(Chosen { case, token })
}

/// Waits until a case is ready, and does nothing about it.
pub(super) fn ready(
    cases: &mut [Case<'_>],
    until: Until,
    biased: bool,
    site: Site,
) -> Option<usize> {
    park::wait_point();
    if cases.is_empty() {
        sleep_without_cases(until, site);
        return None;
    }
    loop {
        let mut order = Draw::new(biased);
        let mut latches = Latches::new();
        latches.acquire(cases);
        for i in 0..cases.len() {
            let case = order.next(cases, i);
            // SAFETY: the latches are taken.
            if unsafe { case.operation.is_ready() } {
                return Some(case.index);
            }
        }
        let deadline = until.clock();
        if until.is_over(deadline) {
            drop(latches);
            park::poll_point();
            return None;
        }
        order.shuffle(cases);
        let turn = Waiter::current().begin();
        let mut places = Places::new();
        let places = places.fill(cases, |_| Place::new(Who::OneOfMany(turn), std::ptr::null_mut()));
        // SAFETY: the latches are taken; the places leave below.
        let wakes = unsafe { join(cases, places, true) };
        drop(latches);
        wakes.wake();
        let slept = turn.sleep(earliest(cases, deadline), WaitReason::Select, site);
        match leave(cases, places, true) {
            Some((case, _)) => return Some(case.index),
            None if slept == Slept::Unwind => park::unwind(),
            None => {}
        }
    }
}

/// A select without cases waits for nothing but the time.
#[cold]
fn sleep_without_cases(until: Until, site: Site) {
    let deadline = until.clock();
    if until.is_over(deadline) {
        return park::poll_point();
    }
    let turn = Waiter::current().begin();
    match turn.sleep(deadline, WaitReason::SelectNoCases, site) {
        Slept::Woken | Slept::Expired => {}
        Slept::Unwind => park::unwind(),
    }
}

/// The earliest of the deadline and of the moments when a case becomes ready by
/// itself.
fn earliest(cases: &[Case<'_>], deadline: Option<u64>) -> Option<u64> {
    let moment: Option<Instant> = cases.iter().filter_map(Case::moment).min();
    if moment.is_none() {
        return deadline;
    }
    [deadline, moment.and_then(|moment| Until::Moment(moment).clock())].into_iter().flatten().min()
}

/// Joins the queues of all.
///
/// # Safety
///
/// As [`Operation::join`], for each.
unsafe fn join(cases: &[Case<'_>], places: &[Option<Place>], watch: bool) -> Chain<Who> {
    let mut wakes = Chain::new();
    for (case, place) in cases.iter().zip(places.iter().flatten()) {
        // SAFETY: the caller's promise.
        wakes.append(unsafe { case.operation.join(place, watch) });
    }
    wakes
}

/// Leaves the queues, after the wait. Returns who has won it, if anybody has: the
/// winner has taken that place out of its queue.
fn leave<'a, 'p>(
    cases: &[Case<'a>],
    places: &'p [Option<Place>],
    watch: bool,
) -> Option<(Case<'a>, &'p Place)> {
    let mut winner = None;
    for (case, place) in cases.iter().zip(places.iter().flatten()) {
        // Only the winner writes an outcome, and it has woken this select.
        if place.outcome() == Outcome::Waiting {
            case.operation.leave(place, watch);
        } else {
            winner = Some((*case, place));
        }
    }
    winner
}

/// One for each of a few cases, without memory but the stack's; or of many.
struct Few<T> {
    few: [Option<T>; FEW],
    many: Vec<Option<T>>,
}

type Places = Few<Place>;

impl<T> Few<T> {
    const fn new() -> Self {
        Few { few: [const { None }; FEW], many: Vec::new() }
    }

    #[inline(always)]
    fn fill<C>(&mut self, cases: &[C], mut make: impl FnMut(&C) -> T) -> &mut [Option<T>] {
        if cases.len() > FEW {
            self.many = cases.iter().map(|case| Some(make(case))).collect();
            return &mut self.many;
        }
        for (place, case) in self.few.iter_mut().zip(cases) {
            *place = Some(make(case));
        }
        &mut self.few[..cases.len()]
    }
}

/// The latches of all channels of a select.
struct Latches<'a> {
    /// In their order; no channel twice.
    taken: Few<(&'a Words, Taken)>,
}

impl<'a> Latches<'a> {
    const fn new() -> Self {
        Latches { taken: Few::new() }
    }

    /// Takes them.
    fn acquire(&mut self, cases: &[Case<'a>]) {
        let latches = cases.iter().filter_map(|case| case.latch);
        if cases.len() > FEW {
            let mut all: Vec<&Words> = latches.collect();
            all.sort_unstable_by_key(|latch| latch.order());
            all.dedup_by_key(|latch| latch.order());
            self.taken.many = all.into_iter().map(|latch| Some((latch, latch.acquire()))).collect();
            return;
        }
        let mut few = [None; FEW];
        let mut len = 0;
        for latch in latches {
            len += usize::from(insert(&mut few[..=len], latch));
        }
        for (taken, latch) in self.taken.few.iter_mut().zip(few.into_iter().flatten()) {
            *taken = Some((latch, latch.acquire()));
        }
    }
}

impl Drop for Latches<'_> {
    fn drop(&mut self) {
        let few = self.taken.few.iter().map_while(Option::as_ref);
        for (latch, taken) in few.chain(self.taken.many.iter().flatten()) {
            // SAFETY: taken above, once each.
            unsafe { latch.release(*taken) };
        }
    }
}

/// Inserts a latch into those before it, which are sorted; the last place is free.
/// False if it is there already.
#[inline(always)]
fn insert<'a>(sorted: &mut [Option<&'a Words>], latch: &'a Words) -> bool {
    let end = sorted.len() - 1;
    let before = sorted.iter().flatten().take_while(|one| one.order() < latch.order()).count();
    if sorted[before].is_some_and(|one| one.order() == latch.order()) {
        return false;
    }
    for i in (before..end).rev() {
        sorted[i + 1] = sorted[i];
    }
    sorted[before] = Some(latch);
    true
}

/// The order in which cases are tried: random, unless it is biased. Drawn as far
/// as it is needed.
struct Draw {
    state: u64,
    biased: bool,
    /// Those that have not come yet, a byte for each, if they are few.
    left: u64,
}

impl Draw {
    #[inline]
    fn new(biased: bool) -> Self {
        let state = if biased { 0 } else { rng::of_thread() };
        Draw { state, biased, left: 0x0706_0504_0302_0100 }
    }

    /// A number less than this one.
    #[inline(always)]
    fn draw(&mut self, of: usize) -> usize {
        // The upper half is random enough to be scaled down (Lemire 2016).
        let draw = (((self.state >> 32) * of as u64) >> 32) as usize;
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        draw
    }

    /// Puts the cases into a random order, unless it is biased: in that order they
    /// queue, and of two at one channel the first one wins.
    fn shuffle(&mut self, cases: &mut [Case<'_>]) {
        if self.biased {
            return;
        }
        for i in 0..cases.len() {
            let draw = self.draw(cases.len() - i);
            cases.swap(i, i + draw);
        }
    }

    /// The `i`th case: one of those that have not come yet.
    #[inline(always)]
    fn next<'c, 'a>(&mut self, cases: &'c mut [Case<'a>], i: usize) -> &'c Case<'a> {
        if self.biased {
            return &cases[i];
        }
        let left = cases.len() - i;
        let draw = self.draw(left);
        if cases.len() > FEW {
            cases.swap(i, i + draw);
            return &cases[i];
        }
        // The last one takes its place.
        let byte = |at: usize| (self.left >> (8 * at)) & 0xff;
        let (drawn, last) = (byte(draw), byte(left - 1));
        self.left ^= (drawn ^ last) << (8 * draw);
        &cases[drawn as usize]
    }
}

const _: () = assert!(FEW <= size_of::<u64>(), "a byte of `Draw::left` for each");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chan;

    #[test]
    fn latches_are_sorted_and_taken_once() {
        let channels: Vec<_> = (0..5).map(|_| chan::bounded::<u8>(1)).collect();
        for first in 0..5 {
            for second in 0..5 {
                let mut cases: Vec<_> =
                    [first, second, 3, 1].iter().map(|i| Case::recv(&channels[*i].1, 0)).collect();
                cases.push(Case::send(&channels[first].0, 0));
                let mut latches = Latches::new();
                latches.acquire(&cases);
                let taken: Vec<_> =
                    latches.taken.few.iter().flatten().map(|(latch, _)| latch.order()).collect();
                let mut expected: Vec<_> =
                    cases.iter().filter_map(|case| case.latch).map(Words::order).collect();
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(taken, expected);
            }
        }
    }

    #[test]
    fn every_case_comes_once_whatever_their_number() {
        let channels: Vec<_> = (0..12).map(|_| chan::bounded::<u8>(1)).collect();
        for n in 1..=channels.len() {
            for biased in [false, true] {
                let mut cases: Vec<_> =
                    channels[..n].iter().zip(0..).map(|((_, r), i)| Case::recv(r, i)).collect();
                let mut order = Draw::new(biased);
                let mut came: Vec<_> = (0..n).map(|i| order.next(&mut cases, i).index).collect();
                if !biased {
                    came.sort_unstable();
                }
                assert_eq!(came, (0..n).collect::<Vec<_>>());
            }
        }
    }
}
