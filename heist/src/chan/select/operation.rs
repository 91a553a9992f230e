//! What a select can do with a channel, whatever its messages are.

use super::super::channel::{Channel, Place, Site, Who, promised_into};
use super::super::large::with_room;
use super::super::protocol::queue::{Chain, Claimed};
use super::super::protocol::state::{self, Room, Side, Take};
use super::super::receiver::{Receiver, Source};
use super::super::sender::Sender;
use crate::prim::latch::Words;
use std::alloc::Layout;
use std::time::Instant;

/// What was selected.
pub(super) enum Token {
    /// A message: it has landed.
    Message,
    /// No sender is left.
    Disconnected,
    /// Room for a message.
    Room(Room<Who>),
}

/// What an attempt with the latch came to, and what is to be done about it when
/// the latch is free again.
pub(super) enum Attempt {
    NotReady,
    /// Nothing but to wake these.
    Selected(Token, Chain<Who>),
    /// Take the message of this sender.
    Collect(Claimed<Who>),
    /// Wait for the message of this one.
    Promise(Claimed<Who>),
}

/// An operation of a select.
///
/// # Safety
///
/// `layout` is that of what `attempt` and others put into a slot.
pub(super) unsafe trait Operation {
    /// The channel's latch, if there is a channel. They are taken in the order of their
    /// addresses.
    fn latch(&self) -> Option<&Words>;
    /// What it receives.
    fn layout(&self) -> Layout;
    /// When it becomes ready by itself.
    fn moment(&self) -> Option<Instant>;

    /// Does it, if that needs no waiting.
    ///
    /// # Safety
    ///
    /// The caller has the latch. The slot is empty and has room for `layout`.
    unsafe fn attempt(&self, slot: *mut ()) -> Attempt;
    /// Does what an attempt left to do, without the latch. `None` if it was in
    /// vain after all.
    ///
    /// # Safety
    ///
    /// The attempt is this operation's, and the slot is as above.
    unsafe fn finish(&self, attempt: Attempt, slot: *mut (), site: Site) -> Option<Token>;

    /// Does it alone, if that needs no waiting.
    ///
    /// # Safety
    ///
    /// The caller does not have the latch. The slot is as above.
    unsafe fn try_alone(&self, slot: *mut (), site: Site) -> Option<Token>;

    /// Whether it would need no waiting. With the latch.
    ///
    /// # Safety
    ///
    /// The caller has the latch.
    unsafe fn is_ready(&self) -> bool;

    /// Joins those who wait to do it, or who watch whether it could be done.
    ///
    /// # Safety
    ///
    /// The caller has the latch. The place stays where it is until it has left;
    /// its slot is empty and has room for `layout`, or is null, for a sender.
    unsafe fn join(&self, place: &Place, watch: bool) -> Chain<Who>;
    /// Leaves them. Takes the latch.
    fn leave(&self, place: &Place, watch: bool);

    /// What was selected is not going to happen.
    ///
    /// # Safety
    ///
    /// The token is this operation's, and a message that it speaks of is in the
    /// slot.
    unsafe fn abandon(&self, token: Token, slot: *mut ());
}

/// The part that is the same for both sides.
macro_rules! common {
    ($channel:expr, $side:expr) => {
        #[inline(always)]
        fn latch(&self) -> Option<&Words> {
            $channel(self).map(|channel| channel.state.words())
        }

        unsafe fn join(&self, place: &Place, watch: bool) -> Chain<Who> {
            let Some(channel) = $channel(self) else { return Chain::new() };
            // SAFETY: the caller has it.
            let state = unsafe { channel.state.get() };
            let chain = if watch {
                // SAFETY: the caller's promise.
                unsafe { state.watch($side, place) };
                Chain::new()
            } else {
                // SAFETY: the caller's promise.
                unsafe { state.enqueue($side, place) }
            };
            chain
        }

        fn leave(&self, place: &Place, watch: bool) {
            let Some(channel) = $channel(self) else { return };
            let mut state = channel.state.lock();
            if watch {
                state.unwatch($side, place);
            } else {
                state.withdraw($side, place);
            }
        }
    };
}

#[inline(always)]
fn of_sender<T>(sender: &Sender<T>) -> Option<&Channel<T>> {
    Some(&sender.channel)
}

#[inline(always)]
fn of_receiver<T>(receiver: &Receiver<T>) -> Option<&Channel<T>> {
    match &receiver.source {
        Source::Channel(channel) => Some(channel),
        Source::Timer(_) | Source::Nowhere(_) => None,
    }
}

// SAFETY: it puts nothing into slots.
unsafe impl<T> Operation for Sender<T> {
    common!(of_sender, Side::Sender);

    fn layout(&self) -> Layout {
        Layout::new::<()>()
    }

    fn moment(&self) -> Option<Instant> {
        None
    }

    #[inline]
    unsafe fn attempt(&self, _: *mut ()) -> Attempt {
        // SAFETY: the caller has it.
        let state = unsafe { self.channel.state.get() };
        let room = state.reserve();
        match room {
            Some(room) => Attempt::Selected(Token::Room(room), Chain::new()),
            None => Attempt::NotReady,
        }
    }

    #[inline]
    unsafe fn finish(&self, attempt: Attempt, _: *mut (), _: Site) -> Option<Token> {
        match attempt {
            Attempt::Selected(token, wakes) => {
                wakes.wake();
                Some(token)
            }
            _ => None,
        }
    }

    unsafe fn try_alone(&self, _: *mut (), _: Site) -> Option<Token> {
        let room = self.channel.state.lock().reserve();
        room.map(Token::Room)
    }

    unsafe fn is_ready(&self) -> bool {
        // SAFETY: the caller has it.
        unsafe { self.channel.state.get() }.is_ready(Side::Sender)
    }

    unsafe fn abandon(&self, token: Token, _: *mut ()) {
        if let Token::Room(room) = token {
            self.channel.abandon(room);
        }
    }
}

// SAFETY: it puts messages, which are of type `T`, into slots.
unsafe impl<T> Operation for Receiver<T> {
    common!(of_receiver, Side::Receiver);

    fn layout(&self) -> Layout {
        Layout::new::<T>()
    }

    fn moment(&self) -> Option<Instant> {
        match &self.source {
            Source::Timer(timer) => timer.next(),
            Source::Channel(_) | Source::Nowhere(_) => None,
        }
    }

    #[inline]
    unsafe fn attempt(&self, slot: *mut ()) -> Attempt {
        let put = |message: T| {
            // SAFETY: the slot is empty and has room for a `T`.
            unsafe { slot.cast::<T>().write(message) };
            Token::Message
        };
        let channel = match &self.source {
            Source::Channel(channel) => channel,
            Source::Timer(timer) => {
                let due = timer.take_due().map(put);
                return due
                    .map_or(Attempt::NotReady, |token| Attempt::Selected(token, Chain::new()));
            }
            Source::Nowhere(_) => return Attempt::NotReady,
        };
        // SAFETY: the caller has it.
        let state = unsafe { channel.state.get() };
        let taken = state.take();
        match taken {
            Take::Message(message, wakes) => Attempt::Selected(put(message), wakes),
            Take::Sender(sender) => Attempt::Collect(sender),
            Take::Promise(sender) => Attempt::Promise(sender),
            Take::Disconnected => Attempt::Selected(Token::Disconnected, Chain::new()),
            Take::Empty => Attempt::NotReady,
        }
    }

    #[inline]
    unsafe fn finish(&self, attempt: Attempt, slot: *mut (), site: Site) -> Option<Token> {
        match attempt {
            Attempt::NotReady => None,
            Attempt::Selected(token, wakes) => {
                wakes.wake();
                Some(token)
            }
            Attempt::Collect(sender) => {
                // SAFETY: the slot is empty and has room for a `T`.
                unsafe { slot.cast::<T>().write(state::collect(sender)) };
                Some(Token::Message)
            }
            Attempt::Promise(sender) => {
                // SAFETY: as above.
                let came = unsafe { promised_into(sender, slot, site) };
                came.then_some(Token::Message)
            }
        }
    }

    unsafe fn try_alone(&self, slot: *mut (), site: Site) -> Option<Token> {
        // SAFETY: the caller's promise.
        with_room::<T, _>(|| unsafe { self.take_alone(slot, site) })
    }

    unsafe fn is_ready(&self) -> bool {
        match &self.source {
            Source::Channel(channel) => {
                // SAFETY: the caller has it.
                unsafe { channel.state.get() }.is_ready(Side::Receiver)
            }
            Source::Timer(timer) => timer.is_ready(),
            Source::Nowhere(_) => false,
        }
    }

    unsafe fn abandon(&self, token: Token, slot: *mut ()) {
        if let Token::Message = token {
            // SAFETY: the message is there.
            unsafe { slot.cast::<T>().drop_in_place() };
        }
    }
}

impl<T> Receiver<T> {
    /// As `attempt` and `finish`, with less in between.
    ///
    /// # Safety
    ///
    /// As [`Operation::try_alone`].
    #[inline(always)]
    unsafe fn take_alone(&self, slot: *mut (), site: Site) -> Option<Token> {
        let Source::Channel(channel) = &self.source else {
            // SAFETY: there is no latch; the slot is the caller's promise.
            return unsafe { self.finish(self.attempt(slot), slot, site) };
        };
        let message = loop {
            let mut state = channel.state.lock();
            match state.take() {
                Take::Empty => return None,
                Take::Message(message, wakes) => {
                    drop(state);
                    wakes.wake();
                    break message;
                }
                Take::Sender(sender) => {
                    drop(state);
                    break state::collect(sender);
                }
                Take::Promise(sender) => {
                    drop(state);
                    // SAFETY: the slot is empty and has room for a `T`.
                    if unsafe { promised_into(sender, slot, site) } {
                        return Some(Token::Message);
                    }
                    // It was not kept. Somebody else may stand behind that one.
                }
                Take::Disconnected => return Some(Token::Disconnected),
            }
        };
        // SAFETY: as above.
        unsafe { slot.cast::<T>().write(message) };
        Some(Token::Message)
    }
}
