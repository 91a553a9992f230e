//! A channel: the protocol, and the sleeping that it leaves to its callers.

use super::error::{SendTimeoutError, TryRecvError, TrySendError};
use super::protocol::buffer::Buffer;
use super::protocol::queue::{Claimed, Outcome, Record, Waits};
use super::protocol::state::{self, Offer, Room, Side, State, Take};
use super::until::Until;
use crate::prim::fatal::fatal;
use crate::prim::latch::Latch;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::waiter::{Slept, Turn, Waiter};
use std::mem::MaybeUninit;
use std::panic::Location;

pub(super) type Site = &'static Location<'static>;

/// One who waits at a channel.
#[derive(Clone, Copy)]
pub(super) enum Who {
    /// At this one and nowhere else: whoever takes its record out of the queue
    /// has it.
    Alone(Waiter),
    /// At several, or until some moment: one of many ends its wait.
    OneOfMany(Turn),
}

impl Waits for Who {
    #[inline(always)]
    fn claim(self) -> bool {
        match self {
            Who::Alone(_) => true,
            Who::OneOfMany(turn) => turn.claim(),
        }
    }

    fn is_open(self) -> bool {
        match self {
            Who::Alone(_) => true,
            Who::OneOfMany(turn) => turn.is_open(),
        }
    }

    #[inline(always)]
    fn wake(self) {
        match self {
            Who::Alone(waiter) => waiter.wake(),
            Who::OneOfMany(turn) => turn.wake(),
        }
    }
}

/// The record of one who waits at a channel.
pub(super) type Place = Record<Who>;

/// The channel.
pub(super) struct Channel<T> {
    pub(super) state: Latch<State<T, Who>>,
}

impl<T> Channel<T> {
    /// For so many messages; `usize::MAX`: without a bound.
    pub(super) fn new(capacity: usize) -> Self {
        Channel { state: Latch::new(State::new(capacity)) }
    }

    /// Sends if that needs no waiting.
    #[inline]
    pub(super) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        park::wait_point();
        let mut state = self.state.lock();
        match state.offer() {
            Offer::Receiver(receiver) => {
                drop(state);
                state::deliver(receiver, message);
                Ok(())
            }
            Offer::Room => {
                let wakes = state.push(message);
                drop(state);
                wakes.wake();
                Ok(())
            }
            Offer::Disconnected => {
                drop(state);
                park::poll_point_in_hand();
                Err(TrySendError::Disconnected(message))
            }
            Offer::Full => {
                drop(state);
                park::poll_point_in_hand();
                Err(TrySendError::Full(message))
            }
        }
    }

    /// Sends, and waits for room or for a receiver if it must.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn send(
        &self,
        message: T,
        until: Until,
        site: Site,
    ) -> Result<(), SendTimeoutError<T>> {
        park::wait_point();
        let mut state = self.state.lock();
        match state.offer() {
            Offer::Receiver(receiver) => {
                drop(state);
                state::deliver(receiver, message);
                return Ok(());
            }
            Offer::Room => {
                let wakes = state.push(message);
                drop(state);
                wakes.wake();
                return Ok(());
            }
            Offer::Disconnected => {
                drop(state);
                park::poll_point_in_hand();
                return Err(SendTimeoutError::Disconnected(message));
            }
            Offer::Full => {}
        }
        let deadline = until.clock();
        if until.is_over(deadline) {
            drop(state);
            park::poll_point_in_hand();
            return Err(SendTimeoutError::Timeout(message));
        }
        let (waiter, who) = caller(deadline);
        let mut slot = MaybeUninit::new(message);
        let slot = slot.as_mut_ptr();
        let place = Place::new(who, slot.cast());
        // SAFETY: this function does not return before the record has left the
        // queue; its slot holds the message.
        let wakes = unsafe { state.enqueue(Side::Sender, &place) };
        drop(state);
        wakes.wake();
        let slept = sleep(waiter, who, deadline, WaitReason::ChanSend, site);
        if slept == Slept::Woken && place.outcome() == Outcome::Done {
            return Ok(());
        }
        // SAFETY: the slot is the record's.
        unsafe { self.not_sent(waiter, &place, slept, slot) }
    }

    /// A sender has waited and its message is not gone, or its wait was cut
    /// short.
    ///
    /// # Safety
    ///
    /// The slot is the one that the record knows, itself and no copy: until the
    /// record has left the queue, it is others' too.
    #[cold]
    #[inline(never)]
    unsafe fn not_sent(
        &self,
        waiter: Waiter,
        place: &Place,
        slept: Slept,
        slot: *mut T,
    ) -> Result<(), SendTimeoutError<T>> {
        if slept != Slept::Woken {
            self.leave(Side::Sender, waiter, place);
        }
        // SAFETY: nobody has taken the message.
        let message = || unsafe { slot.read() };
        match place.outcome() {
            Outcome::Done => {}
            Outcome::Disconnected if slept == Slept::Woken => {
                return Err(SendTimeoutError::Disconnected(message()));
            }
            Outcome::Waiting if slept == Slept::Expired => {
                return Err(SendTimeoutError::Timeout(message()));
            }
            Outcome::Waiting | Outcome::Disconnected if slept == Slept::Unwind => drop(message()),
            other => fatal!("a sender slept ({slept:?}) and woke to {other:?}"),
        }
        park::unwind()
    }

    /// Receives if that needs no waiting.
    #[inline]
    pub(super) fn try_recv(&self, site: Site) -> Result<T, TryRecvError> {
        park::wait_point();
        loop {
            let mut state = self.state.lock();
            match state.take() {
                Take::Message(message, wakes) => {
                    drop(state);
                    wakes.wake();
                    return Ok(message);
                }
                Take::Sender(sender) => {
                    drop(state);
                    return Ok(state::collect(sender));
                }
                Take::Promise(sender) => {
                    drop(state);
                    if let Some(message) = promised(sender, site) {
                        return Ok(message);
                    }
                }
                Take::Disconnected => {
                    drop(state);
                    park::poll_point();
                    return Err(TryRecvError::Disconnected);
                }
                Take::Empty => {
                    drop(state);
                    park::poll_point();
                    return Err(TryRecvError::Empty);
                }
            }
        }
    }

    /// Receives, and waits for a message if it must. `Empty` means that the time
    /// is up.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn recv(&self, until: Until, site: Site) -> Result<T, TryRecvError> {
        park::wait_point();
        loop {
            let mut state = self.state.lock();
            match state.take() {
                Take::Message(message, wakes) => {
                    drop(state);
                    wakes.wake();
                    return Ok(message);
                }
                Take::Sender(sender) => {
                    drop(state);
                    return Ok(state::collect(sender));
                }
                Take::Promise(sender) => {
                    drop(state);
                    match promised(sender, site) {
                        Some(message) => return Ok(message),
                        None => continue,
                    }
                }
                Take::Disconnected => {
                    drop(state);
                    return Err(all_gone(TryRecvError::Disconnected));
                }
                Take::Empty => {}
            }
            let deadline = until.clock();
            if until.is_over(deadline) {
                drop(state);
                park::poll_point();
                return Err(TryRecvError::Empty);
            }
            let (waiter, who) = caller(deadline);
            let mut slot = MaybeUninit::<T>::uninit();
            let slot = slot.as_mut_ptr();
            let place = Place::new(who, slot.cast());
            // SAFETY: this function does not return before the record has left
            // the queue; its slot is empty and for a `T`.
            let wakes = unsafe { state.enqueue(Side::Receiver, &place) };
            drop(state);
            wakes.wake();
            let slept = sleep(waiter, who, deadline, WaitReason::ChanReceive, site);
            if slept == Slept::Woken && place.outcome() == Outcome::Done {
                // SAFETY: that outcome says that the message is there.
                return Ok(unsafe { slot.read() });
            }
            // SAFETY: the slot is the record's.
            match unsafe { self.not_received(waiter, &place, slept, slot) } {
                Outcome::Retry => {}
                Outcome::Disconnected => return Err(all_gone(TryRecvError::Disconnected)),
                _ => return Err(TryRecvError::Empty),
            }
        }
    }

    /// A receiver has waited and has no message, or its wait was cut short.
    ///
    /// # Safety
    ///
    /// The slot is the one that the record knows, itself and no copy: until the
    /// record has left the queue, a message may come there.
    #[cold]
    #[inline(never)]
    unsafe fn not_received(
        &self,
        waiter: Waiter,
        place: &Place,
        slept: Slept,
        slot: *mut T,
    ) -> Outcome {
        if slept != Slept::Woken {
            self.leave(Side::Receiver, waiter, place);
        }
        match (slept, place.outcome()) {
            (Slept::Woken, outcome @ (Outcome::Disconnected | Outcome::Retry))
            | (Slept::Expired, outcome @ Outcome::Waiting) => outcome,
            (Slept::Unwind, Outcome::Done) => {
                // SAFETY: that outcome says that the message is there.
                drop(unsafe { slot.read() });
                park::unwind()
            }
            (Slept::Unwind, _) => park::unwind(),
            (_, other) => fatal!("a receiver slept ({slept:?}) and woke to {other:?}"),
        }
    }

    /// Leaves the queue after a wait that was cut short. One who waited alone may
    /// be too late for that: then somebody has taken its record and wakes it.
    fn leave(&self, side: Side, waiter: Waiter, place: &Place) {
        let mut state = self.state.lock();
        let queued = place.is_queued();
        state.withdraw(side, place);
        drop(state);
        if !queued && matches!(place.who, Who::Alone(_)) {
            waiter.absorb();
        }
    }

    /// Fills the room that a select was given.
    pub(super) fn complete(&self, room: Room<Who>, message: T) -> Result<(), T> {
        match room {
            Room::Partner(receiver) => state::deliver(receiver, message),
            Room::Disconnected => return Err(message),
            Room::Reserved => {
                let mut state = self.state.lock();
                if state.is_disconnected() {
                    let wakes = state.fill(None);
                    drop(state);
                    wakes.wake();
                    return Err(message);
                }
                let wakes = state.fill(Some(message));
                drop(state);
                wakes.wake();
            }
        }
        Ok(())
    }

    /// Gives back the room that a select was given and has no message for.
    pub(super) fn abandon(&self, room: Room<Who>) {
        match room {
            Room::Partner(receiver) => receiver.end(Outcome::Retry),
            Room::Disconnected => {}
            // The message of another sender may come into that place.
            Room::Reserved => super::large::with_room::<T, _>(|| {
                let mut state = self.state.lock();
                let wakes = state.fill(None);
                drop(state);
                wakes.wake();
            }),
        }
    }

    /// How many messages there are.
    pub(super) fn len(&self) -> usize {
        let len = self.state.lock().len();
        if len == 0 {
            park::poll_point()
        } else {
            park::wait_point()
        }
        len
    }

    /// Whether a message would have to wait.
    pub(super) fn is_full(&self) -> bool {
        let full = !self.state.lock().has_room();
        if full {
            park::poll_point()
        } else {
            park::wait_point()
        }
        full
    }

    /// How many messages there can be.
    pub(super) fn capacity(&self) -> Option<usize> {
        Some(self.state.lock().capacity()).filter(|capacity| *capacity != usize::MAX)
    }

    /// The last of one side goes away. Returns the messages that nobody will
    /// receive, to be dropped when everything else is done.
    ///
    /// Those of a bounded channel stay until its senders are gone, as in crossbeam.
    pub(super) fn disconnect(&self, side: Side) -> impl Drop + use<T> {
        self.disconnect_and(|state| side == Side::Receiver && state.capacity() == usize::MAX)
    }

    /// The only receiver goes away, and the messages with it.
    pub(super) fn discard(&self) -> impl Drop + use<T> {
        self.disconnect_and(|_| true)
    }

    fn disconnect_and(
        &self,
        takes_messages: impl FnOnce(&State<T, Who>) -> bool,
    ) -> Leftover<Buffer<T>> {
        let mut state = self.state.lock();
        let wakes = state.disconnect();
        let messages = takes_messages(&state).then(|| state.take_messages());
        drop(state);
        wakes.wake();
        Leftover(messages)
    }
}

/// Messages that nobody will receive.
struct Leftover<B>(#[allow(dead_code)] Option<B>); // for its drop

impl<B> Drop for Leftover<B> {
    fn drop(&mut self) {}
}

/// What a receiver is told that waits, or would, for senders that have all gone. If that is
/// since its runtime ends, which has unwound them, it ends with it.
#[cold]
pub(super) fn all_gone<E>(error: E) -> E {
    park::unwind_if_closing();
    park::poll_point();
    error
}

/// The caller, as one who waits.
#[inline(always)]
fn caller(deadline: Option<u64>) -> (Waiter, Who) {
    let waiter = Waiter::current();
    let who = match deadline {
        None => Who::Alone(waiter),
        Some(_) => Who::OneOfMany(waiter.begin()),
    };
    (waiter, who)
}

#[inline(always)] // as `park::yield_now`
fn sleep(waiter: Waiter, who: Who, deadline: Option<u64>, reason: WaitReason, site: Site) -> Slept {
    match who {
        Who::Alone(_) => waiter.sleep_or_unwind(reason, site),
        Who::OneOfMany(turn) => turn.sleep(deadline, reason, site),
    }
}

/// Waits for the message of a sender that was about to make one. `None` if it
/// changed its mind.
#[cold]
#[inline(never)]
pub(super) fn promised<T>(sender: Claimed<Who>, site: Site) -> Option<T> {
    let mut slot = MaybeUninit::<T>::uninit();
    // SAFETY: the slot is for a `T`, as the channel's messages are.
    let came = unsafe { promised_into(sender, slot.as_mut_ptr().cast(), site) };
    // SAFETY: it came, so it is there.
    came.then(|| unsafe { slot.assume_init() })
}

/// As [`promised`], into a slot.
///
/// # Safety
///
/// The slot is empty and for a message of the sender's channel.
pub(super) unsafe fn promised_into(sender: Claimed<Who>, slot: *mut (), site: Site) -> bool {
    let waiter = Waiter::current();
    let place = Place::new(Who::Alone(waiter), slot);
    // SAFETY: it stays here until the outcome has come.
    unsafe { state::pair(sender, &place) };
    waiter.sleep_whatever_comes(WaitReason::ChanReceive, site);
    match place.outcome() {
        Outcome::Done => true,
        Outcome::Retry => false,
        other => fatal!("a receiver that was promised a message woke to {other:?}"),
    }
}
