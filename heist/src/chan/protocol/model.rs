//! The channel under the model checker: send, receive, close and select against
//! each other and against the clock.
//!
//! Messages are plain memory, so a hand-over that does not order what came
//! before it is found too.

use super::queue::{Claimed, Outcome, Record, Waits};
use super::state::{self, Offer, Room, Side, State, Take};
use crate::prim::atomic::AtomicU64;
use crate::prim::cell::Plain;
use crate::prim::latch::Latch;
use crate::sched::protocol::turn::{End, Number, TurnWord};
use loom::sync::Arc;
use loom::thread;
use std::mem::MaybeUninit;

/// Whoever sleeps, and is woken.
struct Party {
    turn: AtomicU64,
    woken: loom::sync::Mutex<bool>,
    bell: loom::sync::Condvar,
}

impl Party {
    fn new() -> Arc<Party> {
        Arc::new(Party {
            turn: AtomicU64::new(0),
            woken: loom::sync::Mutex::new(false),
            bell: loom::sync::Condvar::new(),
        })
    }

    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.bell.wait(woken).unwrap();
        }
        *woken = false;
    }

    fn wake(&self) {
        assert!(!std::mem::replace(&mut *self.woken.lock().unwrap(), true), "woken twice");
        self.bell.notify_one();
    }
}

#[derive(Clone, Copy)]
struct Who {
    party: *const Party,
    number: Option<Number>,
}

// SAFETY: parties live until the end of a model.
unsafe impl Send for Who {}

impl Who {
    fn alone(party: &Party) -> Who {
        Who { party, number: None }
    }

    fn one_of_many(party: &Party) -> (Who, Number) {
        let number = TurnWord(&party.turn).begin();
        (Who { party, number: Some(number) }, number)
    }

    fn party(&self) -> &Party {
        // SAFETY: parties live until the end of a model.
        unsafe { &*self.party }
    }
}

impl Waits for Who {
    fn claim(self) -> bool {
        self.number.is_none_or(|number| TurnWord(&self.party().turn).claim(number))
    }

    fn is_open(self) -> bool {
        self.number.is_none_or(|number| TurnWord(&self.party().turn).is_open(number))
    }

    fn wake(self) {
        self.party().wake();
    }
}

/// A message that says who made it, in plain memory.
struct Message(Plain<u32>);

fn message(value: u32) -> Box<Message> {
    let message = Box::new(Message(Plain::new(0)));
    message.0.set(value);
    message
}

type Channel = Latch<State<Box<Message>, Who>>;

fn channel(capacity: usize) -> Arc<Channel> {
    Arc::new(Latch::new(State::new(capacity)))
}

/// As `Channel::send`, without a deadline.
fn send(channel: &Channel, party: &Party, value: u32) -> Result<(), u32> {
    let mut state = channel.lock();
    match state.offer() {
        Offer::Receiver(receiver) => {
            drop(state);
            state::deliver(receiver, message(value));
            Ok(())
        }
        Offer::Room => {
            let wakes = state.push(message(value));
            drop(state);
            wakes.wake();
            Ok(())
        }
        Offer::Disconnected => Err(value),
        Offer::Full => {
            let mut slot = MaybeUninit::new(message(value));
            let record = Record::new(Who::alone(party), slot.as_mut_ptr().cast());
            // SAFETY: this function waits until the record has left the queue.
            let wakes = unsafe { state.enqueue(Side::Sender, &record) };
            drop(state);
            wakes.wake();
            party.sleep();
            match record.outcome() {
                Outcome::Done => Ok(()),
                Outcome::Disconnected => {
                    // SAFETY: nobody has taken it.
                    Err(unsafe { slot.assume_init() }.0.get())
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// As `Channel::recv`; with `expiry`, the number of the wait that the clock ends.
fn recv(channel: &Channel, party: &Party, expiry: Option<Number>) -> Result<u32, Outcome> {
    loop {
        let mut state = channel.lock();
        match state.take() {
            Take::Message(message, wakes) => {
                drop(state);
                wakes.wake();
                return Ok(message.0.get());
            }
            Take::Sender(sender) => {
                drop(state);
                return Ok(state::collect::<Box<Message>, _>(sender).0.get());
            }
            Take::Promise(sender) => {
                drop(state);
                match promised(sender, party) {
                    Some(message) => return Ok(message),
                    None => continue,
                }
            }
            Take::Disconnected => return Err(Outcome::Disconnected),
            Take::Empty => {}
        }
        let mut slot = MaybeUninit::<Box<Message>>::uninit();
        let who = Who { party, number: expiry };
        let record = Record::new(who, slot.as_mut_ptr().cast());
        // SAFETY: this function waits until the record has left the queue.
        let wakes = unsafe { state.enqueue(Side::Receiver, &record) };
        drop(state);
        wakes.wake();
        party.sleep();
        if let Some(number) = who.number
            && TurnWord(&party.turn).end_of(number) == End::Expired
        {
            channel.lock().withdraw(Side::Receiver, &record);
            return Err(Outcome::Waiting);
        }
        match record.outcome() {
            // SAFETY: it is there.
            Outcome::Done => return Ok(unsafe { slot.assume_init() }.0.get()),
            Outcome::Retry => {}
            outcome => return Err(outcome),
        }
    }
}

/// Takes the message of a select that has promised one; `None` if it thought better of it.
fn promised(sender: Claimed<Who>, party: &Party) -> Option<u32> {
    let mut slot = MaybeUninit::<Box<Message>>::uninit();
    let record = Record::new(Who::alone(party), slot.as_mut_ptr().cast());
    // SAFETY: the record stays here until the outcome has come.
    unsafe { state::pair(sender, &record) };
    party.sleep();
    // SAFETY: if it is done, the message is there.
    (record.outcome() == Outcome::Done).then(|| unsafe { slot.assume_init() }.0.get())
}

/// A select over receives: the winner's index, and its message or the end.
fn select_recv(channels: [&Channel; 2], party: &Party) -> (usize, Option<u32>) {
    // As the engine: all latches in one order, look, join, sleep, leave.
    'again: loop {
        let mut held = channels.map(Latch::lock);
        for index in 0..2 {
            match held[index].take() {
                Take::Message(message, wakes) => {
                    drop(held);
                    wakes.wake();
                    return (index, Some(message.0.get()));
                }
                Take::Sender(sender) => {
                    drop(held);
                    return (index, Some(state::collect::<Box<Message>, _>(sender).0.get()));
                }
                Take::Promise(sender) => {
                    drop(held);
                    match promised(sender, party) {
                        Some(message) => return (index, Some(message)),
                        None => continue 'again,
                    }
                }
                Take::Disconnected => return (index, None),
                Take::Empty => {}
            }
        }
        let mut slot = MaybeUninit::<Box<Message>>::uninit();
        let (who, _) = Who::one_of_many(party);
        let records = [(); 2].map(|()| Record::new(who, slot.as_mut_ptr().cast()));
        for (state, record) in held.iter_mut().zip(&records) {
            // SAFETY: this function waits until the records have left the queues.
            unsafe { state.enqueue(Side::Receiver, record) }.wake();
        }
        drop(held);
        party.sleep();
        let won = records.iter().position(|record| record.outcome() != Outcome::Waiting).unwrap();
        channels[1 - won].lock().withdraw(Side::Receiver, &records[1 - won]);
        assert_eq!(records[1 - won].outcome(), Outcome::Waiting, "one winner");
        return match records[won].outcome() {
            // SAFETY: it is there.
            Outcome::Done => (won, Some(unsafe { slot.assume_init() }.0.get())),
            Outcome::Disconnected => (won, None),
            Outcome::Retry => continue,
            other => panic!("{other:?}"),
        };
    }
}

/// A select over one send, whose message comes after the choice.
fn select_send(channel: &Channel, party: &Party, value: u32) -> Result<(), u32> {
    let mut state = channel.lock();
    let room = match state.reserve() {
        Some(room) => {
            drop(state);
            room
        }
        None => {
            let (who, _) = Who::one_of_many(party);
            let record = Record::new(who, std::ptr::null_mut());
            // SAFETY: this function waits until the record has left the queue.
            let wakes = unsafe { state.enqueue(Side::Sender, &record) };
            drop(state);
            wakes.wake();
            party.sleep();
            match record.outcome() {
                Outcome::Done => Room::Reserved,
                // SAFETY: a receiver left its record and sleeps.
                Outcome::Paired => {
                    Room::Partner(unsafe { Claimed::from_raw(record.slot().cast_const().cast()) })
                }
                Outcome::Disconnected => Room::Disconnected,
                other => panic!("{other:?}"),
            }
        }
    };
    match room {
        Room::Partner(receiver) => state::deliver(receiver, message(value)),
        Room::Disconnected => return Err(value),
        Room::Reserved => {
            let mut state = channel.lock();
            let filled = !state.is_disconnected();
            let wakes = state.fill(filled.then(|| message(value)));
            drop(state);
            wakes.wake();
            if !filled {
                return Err(value);
            }
        }
    }
    Ok(())
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_sender_against_a_receiver() {
    for capacity in [0, 1] {
        explore(move || {
            let channel = channel(capacity);
            let sender = {
                let channel = channel.clone();
                thread::spawn(move || {
                    let party = Party::new();
                    assert_eq!(send(&channel, &party, 1), Ok(()));
                    assert_eq!(send(&channel, &party, 2), Ok(()));
                })
            };
            let party = Party::new();
            assert_eq!(recv(&channel, &party, None), Ok(1));
            assert_eq!(recv(&channel, &party, None), Ok(2));
            sender.join().unwrap();
        });
    }
}

#[test]
fn closing_against_both_sides() {
    for capacity in [0, 1] {
        explore(move || {
            let channel = channel(capacity);
            let party = Party::new();
            let closer = {
                let channel = channel.clone();
                thread::spawn(move || {
                    let wakes = channel.lock().disconnect();
                    wakes.wake();
                })
            };
            let sender = {
                let channel = channel.clone();
                thread::spawn(move || send(&channel, &Party::new(), 1))
            };
            let received = recv(&channel, &party, None);
            let sent = sender.join().unwrap();
            closer.join().unwrap();
            match (sent, received) {
                (Ok(()), Ok(1)) | (Err(1), Err(Outcome::Disconnected)) => {}
                // It stays in the buffer: the receiver had come too early.
                (Ok(()), Err(Outcome::Disconnected)) => assert_eq!(channel.lock().len(), 1),
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn a_receiver_against_the_clock() {
    explore(|| {
        let channel = channel(0);
        let party = Party::new();
        let number = TurnWord(&party.turn).begin();
        let sender = {
            let channel = channel.clone();
            thread::spawn(move || {
                let mut state = channel.lock();
                match state.offer() {
                    Offer::Receiver(receiver) => {
                        drop(state);
                        state::deliver(receiver, message(1));
                        true
                    }
                    Offer::Full => false,
                    _ => panic!("neither room nor an end"),
                }
            })
        };
        let expiry = {
            let party = party.clone();
            thread::spawn(move || {
                if TurnWord(&party.turn).expire(number) {
                    party.wake();
                }
            })
        };
        let received = recv(&channel, &party, Some(number));
        expiry.join().unwrap();
        match sender.join().unwrap() {
            true => assert_eq!(received, Ok(1)),
            false => assert_eq!(received, Err(Outcome::Waiting)),
        }
        assert!(matches!(channel.lock().offer(), Offer::Full), "nobody is left in the queue");
    });
}

#[test]
fn a_select_against_two_senders() {
    explore(|| {
        let channels = [channel(1), channel(1)];
        let senders = [0, 1].map(|i: usize| {
            let channel = channels[i].clone();
            thread::spawn(move || send(&channel, &Party::new(), i as u32))
        });
        let (index, value) = select_recv([&channels[0], &channels[1]], &Party::new());
        assert_eq!(Some(index as u32), value);
        for sender in senders {
            assert_eq!(sender.join().unwrap(), Ok(()));
        }
        let left = channels.map(|channel| channel.lock().len());
        assert_eq!(left[index], 0);
        assert_eq!(left[1 - index], 1, "the other message is in its channel");
    });
}

#[test]
fn a_select_that_sends_against_a_receiver() {
    for capacity in [0, 1] {
        explore(move || {
            let channel = channel(capacity);
            let sender = {
                let channel = channel.clone();
                thread::spawn(move || {
                    let party = Party::new();
                    assert_eq!(select_send(&channel, &party, 1), Ok(()));
                    assert_eq!(select_send(&channel, &party, 2), Ok(()));
                })
            };
            let party = Party::new();
            assert_eq!(recv(&channel, &party, None), Ok(1));
            assert_eq!(recv(&channel, &party, None), Ok(2));
            sender.join().unwrap();
        });
    }
}

/// A select, the end of one of its channels, and a message in the other.
#[test]
fn a_select_against_an_end_and_a_sender() {
    for capacity in [0, 1] {
        explore(move || {
            let channels = [channel(capacity), channel(capacity)];
            let closer = {
                let channel = channels[0].clone();
                thread::spawn(move || {
                    let wakes = channel.lock().disconnect();
                    wakes.wake();
                })
            };
            let sender = {
                let channel = channels[1].clone();
                thread::spawn(move || send(&channel, &Party::new(), 1))
            };
            let party = Party::new();
            match select_recv([&channels[0], &channels[1]], &party) {
                (0, None) => {
                    assert_eq!(recv(&channels[1], &party, None), Ok(1), "it is not lost");
                }
                (1, Some(1)) => {}
                other => panic!("{other:?}"),
            }
            assert_eq!(sender.join().unwrap(), Ok(()));
            closer.join().unwrap();
        });
    }
}

/// A select that was given room, and then has nobody to send to.
#[test]
fn a_select_that_sends_against_an_end() {
    for capacity in [0, 1] {
        explore(move || {
            let channel = channel(capacity);
            let sender = {
                let channel = channel.clone();
                thread::spawn(move || select_send(&channel, &Party::new(), 1))
            };
            let wakes = channel.lock().disconnect();
            wakes.wake();
            let sent = sender.join().unwrap();
            let mut state = channel.lock();
            match sent {
                Ok(()) => assert!(matches!(state.take(), Take::Message(..))),
                Err(value) => assert!(value == 1 && matches!(state.take(), Take::Disconnected)),
            }
            assert_eq!(state.len(), 0, "nothing is left, nor reserved");
        });
    }
}

/// One select receives what the other one sends, each with another channel to look at.
#[test]
fn two_selects_meet() {
    for capacity in [0, 1] {
        explore(move || {
            let channels = [channel(capacity), channel(capacity)];
            let sender = {
                let channel = channels[1].clone();
                thread::spawn(move || select_send(&channel, &Party::new(), 1))
            };
            let received = select_recv([&channels[0], &channels[1]], &Party::new());
            assert_eq!(received, (1, Some(1)));
            assert_eq!(sender.join().unwrap(), Ok(()));
        });
    }
}
