//! The state of a channel, behind its latch.
//!
//! # What always holds
//!
//! 1. While a receiver waits that somebody could claim, there is no message.
//! 2. While a sender waits that somebody could claim, there is no room: the
//!    messages and the reservations are as many as the capacity.
//! 3. A record is in a queue only while its owner sleeps, or before it does, or
//!    before it has taken the latch again.
//!
//! A *reservation* is room that a select has been promised and has not yet
//! filled: it chooses to send before the message exists. At a channel without
//! room for messages it is a receiver that stays asleep until its message is
//! there ([`Room::Partner`]).
//!
//! # The order of things
//!
//! Under the latch it is decided who gets what; the message is moved into or out
//! of the stack of the one that waits when the latch is free again, and then that
//! one is woken. Nobody else can touch it in between: its record has left the
//! queue and its wait is claimed.

use super::buffer::Buffer;
use super::queue::{Chain, Claimed, Outcome, Queue, Record, Waits};

/// What a channel consists of.
#[derive(Debug)]
#[repr(C)] // what every operation reads comes first
pub(crate) struct State<T, W> {
    /// One side is gone.
    disconnected: bool,
    /// How many messages it holds at most.
    capacity: usize,
    /// Room that was promised and is not yet filled.
    reserved: usize,
    receivers: Queue<W>,
    senders: Queue<W>,
    buffer: Buffer<T>,
    /// Those who want to know when it is ready for a receiver, or for a sender.
    receiver_watch: Queue<W>,
    sender_watch: Queue<W>,
}

// SAFETY: the pointers are to records, whose owners share them on purpose.
unsafe impl<T: Send, W: Send> Send for State<T, W> {}

/// The two sides of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

/// How a sender gets rid of its message.
#[derive(Debug)]
#[must_use]
pub(crate) enum Offer<W> {
    /// Into the stack of a receiver, with the latch free again: [`deliver`].
    Receiver(Claimed<W>),
    /// Into the buffer, while the latch is still held: [`State::push`].
    Room,
    /// Not at all.
    Disconnected,
    /// It has to wait.
    Full,
}

/// How a receiver gets a message.
#[derive(Debug)]
#[must_use]
pub(crate) enum Take<T, W> {
    /// Here it is; and who is to be woken when the latch is free again.
    Message(T, Chain<W>),
    /// From the stack of a sender, with the latch free again: [`collect`].
    Sender(Claimed<W>),
    /// From a sender that does not have it yet: [`pair`], with the latch free
    /// again, then sleep until it comes.
    Promise(Claimed<W>),
    /// Not at all, and never more.
    Disconnected,
    /// It has to wait.
    Empty,
}

/// The place for a message that a select is going to send.
#[derive(Debug)]
#[must_use]
pub(crate) enum Room<W> {
    /// A reservation.
    Reserved,
    /// A receiver that waits for this message alone.
    Partner(Claimed<W>),
    /// No receiver is left.
    Disconnected,
}

impl<T, W: Waits> State<T, W> {
    /// A channel for so many messages; `usize::MAX`: without a bound.
    pub(crate) fn new(capacity: usize) -> Self {
        let room = if capacity == usize::MAX { 0 } else { capacity };
        State {
            disconnected: false,
            capacity,
            reserved: 0,
            receivers: Queue::new(),
            senders: Queue::new(),
            buffer: Buffer::with_room(room),
            receiver_watch: Queue::new(),
            sender_watch: Queue::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.buffer.len() + self.reserved < self.capacity
    }

    pub(crate) fn is_disconnected(&self) -> bool {
        self.disconnected
    }

    /// What a sender can do now.
    #[inline(always)]
    pub(crate) fn offer(&mut self) -> Offer<W> {
        if self.disconnected {
            return Offer::Disconnected;
        }
        if let Some(receiver) = self.receivers.claim_first() {
            return Offer::Receiver(receiver);
        }
        if self.has_room() { Offer::Room } else { Offer::Full }
    }

    /// Puts a message where [`offer`](Self::offer) found room. Returns who is to
    /// be woken when the latch is free again.
    #[inline(always)]
    pub(crate) fn push(&mut self, message: T) -> Chain<W> {
        self.buffer.push(message);
        claim_watch(&mut self.receiver_watch)
    }

    /// What a receiver can have now.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Take<T, W> {
        if let Some(message) = self.buffer.pop() {
            let wakes = if self.senders.is_empty() {
                claim_watch(&mut self.sender_watch)
            } else {
                self.settle()
            };
            return Take::Message(message, wakes);
        }
        if let Some(sender) = self.senders.claim_first() {
            return if sender.record().slot().is_null() {
                Take::Promise(sender)
            } else {
                Take::Sender(sender)
            };
        }
        if self.disconnected { Take::Disconnected } else { Take::Empty }
    }

    /// A select wants to send, and has no message yet.
    pub(crate) fn reserve(&mut self) -> Option<Room<W>> {
        match self.offer() {
            Offer::Receiver(receiver) => Some(Room::Partner(receiver)),
            Offer::Room => {
                self.reserved += 1;
                Some(Room::Reserved)
            }
            Offer::Disconnected => Some(Room::Disconnected),
            Offer::Full => None,
        }
    }

    /// Fills a reservation, or with `None` gives it back. Returns who is to be
    /// woken when the latch is free again.
    pub(crate) fn fill(&mut self, message: Option<T>) -> Chain<W> {
        self.reserved -= 1;
        if let Some(message) = message {
            self.buffer.push(message);
        }
        let mut wakes = self.settle();
        wakes.append(claim_watch(&mut self.receiver_watch));
        wakes
    }

    /// Makes the invariants true again after room or a message has come without
    /// the one that waited for it: messages to receivers, senders into room.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) -> Chain<W> {
        let mut wakes = Chain::new();
        loop {
            if !self.buffer.is_empty()
                && let Some(receiver) = self.receivers.claim_first()
            {
                if let Some(message) = self.buffer.pop() {
                    write(&receiver, message);
                }
                receiver.record().set_outcome(Outcome::Done);
                wakes.push(receiver);
            } else if self.has_room()
                && let Some(sender) = self.senders.claim_first()
            {
                if sender.record().slot().is_null() {
                    self.reserved += 1;
                } else {
                    self.buffer.push(read(&sender));
                }
                sender.record().set_outcome(Outcome::Done);
                wakes.push(sender);
            } else {
                break;
            }
        }
        if self.has_room() {
            wakes.append(claim_watch(&mut self.sender_watch));
        }
        wakes
    }

    /// Adds one who waits. Returns who is to be woken when the latch is free
    /// again: who watches for such a one.
    ///
    /// # Safety
    ///
    /// The record stays where it is until it has left the queue. Its slot is
    /// null, and it is a sender's, or is for a `T`: a receiver's is empty, a
    /// sender's holds the message.
    #[inline(always)]
    pub(crate) unsafe fn enqueue(&mut self, side: Side, record: &Record<W>) -> Chain<W> {
        let (queue, watch) = match side {
            Side::Sender => (&mut self.senders, &mut self.receiver_watch),
            Side::Receiver => (&mut self.receivers, &mut self.sender_watch),
        };
        // SAFETY: the caller's promise.
        unsafe { queue.push(record) };
        claim_watch(watch)
    }

    /// Takes a record out of its queue, if nobody else has.
    pub(crate) fn withdraw(&mut self, side: Side, record: &Record<W>) {
        match side {
            Side::Sender => self.senders.remove(record),
            Side::Receiver => self.receivers.remove(record),
        }
    }

    /// Whether an operation of this side would not have to wait.
    pub(crate) fn is_ready(&self, side: Side) -> bool {
        self.disconnected
            || match side {
                Side::Sender => self.has_room() || self.receivers.any_open(),
                Side::Receiver => !self.buffer.is_empty() || self.senders.any_open(),
            }
    }

    /// Adds one who wants to know when this side is ready.
    ///
    /// # Safety
    ///
    /// The record stays where it is until it has left the queue.
    pub(crate) unsafe fn watch(&mut self, side: Side, record: &Record<W>) {
        // SAFETY: the caller's promise.
        unsafe { self.watchers(side).push(record) };
    }

    /// Takes a record out of the watch, if nobody else has.
    pub(crate) fn unwatch(&mut self, side: Side, record: &Record<W>) {
        self.watchers(side).remove(record);
    }

    fn watchers(&mut self, side: Side) -> &mut Queue<W> {
        match side {
            Side::Sender => &mut self.sender_watch,
            Side::Receiver => &mut self.receiver_watch,
        }
    }

    /// One side is gone: everybody who waits is to be woken when the latch is
    /// free again.
    pub(crate) fn disconnect(&mut self) -> Chain<W> {
        self.disconnected = true;
        let mut wakes = Chain::new();
        for queue in [
            &mut self.receivers,
            &mut self.senders,
            &mut self.receiver_watch,
            &mut self.sender_watch,
        ] {
            wakes.append(queue.claim_all());
        }
        wakes.with(Outcome::Disconnected)
    }

    /// All messages, for whoever drops them without the latch.
    pub(crate) fn take_messages(&mut self) -> Buffer<T> {
        std::mem::replace(&mut self.buffer, Buffer::with_room(0))
    }
}

#[inline(always)]
fn claim_watch<W: Waits>(watch: &mut Queue<W>) -> Chain<W> {
    if watch.is_empty() {
        return Chain::new();
    }
    watch_all(watch)
}

#[cold]
#[inline(never)]
fn watch_all<W: Waits>(watch: &mut Queue<W>) -> Chain<W> {
    watch.claim_all().with(Outcome::Done)
}

/// Gives a waiting receiver its message and wakes it. Without the latch.
#[inline(always)]
pub(crate) fn deliver<T, W: Waits>(receiver: Claimed<W>, message: T) {
    write(&receiver, message);
    receiver.end(Outcome::Done);
}

/// Takes the message of a waiting sender and wakes it. Without the latch.
#[inline(always)]
pub(crate) fn collect<T, W: Waits>(sender: Claimed<W>) -> T {
    let message = read(&sender);
    sender.end(Outcome::Done);
    message
}

/// Lets a sender that has no message yet know of a receiver that waits for it,
/// and wakes it. Without the latch; the receiver then sleeps, whatever comes,
/// until the outcome of its record is there.
///
/// # Safety
///
/// The receiver's record is in no queue and stays where it is until then.
pub(crate) unsafe fn pair<W: Waits>(sender: Claimed<W>, receiver: &Record<W>) {
    sender.record().set_slot(std::ptr::from_ref(receiver).cast_mut().cast());
    sender.end(Outcome::Paired);
}

#[inline(always)]
fn write<T, W: Waits>(receiver: &Claimed<W>, message: T) {
    // SAFETY: the slot of a receiver that waits at a channel for `T` is empty,
    // and for a `T` (`State::enqueue`); it is the claimer's.
    unsafe { receiver.record().slot().cast::<T>().write(message) };
}

#[inline(always)]
fn read<T, W: Waits>(sender: &Claimed<W>) -> T {
    // SAFETY: the slot of a sender that waits at a channel for `T` holds its
    // message (`State::enqueue`), which the claimer takes, once.
    unsafe { sender.record().slot().cast::<T>().read() }
}
