//! std's channels.

use super::*;
use heist::sync::mpsc::{
    Receiver, RecvError, RecvTimeoutError, SendError, SyncSender, TryRecvError, TrySendError,
    channel, sync_channel,
};

#[test]
fn messages_come_in_order() {
    everywhere(|| {
        let (sender, receiver) = channel();
        let task = thread::spawn(move || (0..1000).for_each(|i| sender.send(i).unwrap()));
        assert!(receiver.iter().eq(0..1000));
        assert_eq!(receiver.recv(), Err(RecvError));
        task.join().unwrap();
    });
}

#[test]
fn many_send_to_one() {
    for procs in [1, 4, CROWDED] {
        for bound in [None, Some(0), Some(1), Some(16)] {
            watched(|| {
                runtime(procs).run(|| {
                    let rounds = many(1000);
                    let sum = match bound {
                        None => {
                            let (sender, receiver) = channel();
                            for _ in 0..8 {
                                let sender = sender.clone();
                                drop(heist::go(move || {
                                    (0..rounds).for_each(|i| sender.send(i).unwrap());
                                }));
                            }
                            drop(sender);
                            receiver.into_iter().sum::<usize>()
                        }
                        Some(bound) => {
                            let (sender, receiver) = sync_channel(bound);
                            for _ in 0..8 {
                                let sender: SyncSender<usize> = sender.clone();
                                drop(heist::go(move || {
                                    (0..rounds).for_each(|i| sender.send(i).unwrap());
                                }));
                            }
                            drop(sender);
                            receiver.iter().sum()
                        }
                    };
                    assert_eq!(sum, 8 * rounds * (rounds - 1) / 2);
                });
            });
        }
    }
}

#[test]
fn a_receiver_that_is_gone_returns_the_message() {
    everywhere(|| {
        let (sender, receiver) = channel();
        drop(receiver);
        assert_eq!(sender.send(1), Err(SendError(1)));
        let (sender, receiver) = sync_channel(1);
        sender.send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        drop(receiver);
        assert_eq!(sender.send(3), Err(SendError(3)));
        assert_eq!(sender.try_send(4), Err(TrySendError::Disconnected(4)));
        // One that waits for room is told, too.
        let (sender, receiver) = sync_channel(0);
        let task = thread::spawn(move || sender.send(5));
        thread::yield_now();
        drop(receiver);
        assert_eq!(task.join().unwrap(), Err(SendError(5)));
    });
}

#[test]
fn what_was_sent_is_received_after_the_sender_is_gone() {
    everywhere(|| {
        let (sender, receiver) = channel();
        sender.send("last").unwrap();
        assert_eq!(receiver.try_iter().count(), 1);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        sender.send("very last").unwrap();
        drop(sender);
        assert_eq!(receiver.recv(), Ok("very last"));
        assert_eq!(receiver.recv(), Err(RecvError));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        let long = Duration::from_secs(1000);
        assert_eq!(receiver.recv_timeout(long), Err(RecvTimeoutError::Disconnected));
    });
}

#[test]
fn a_rendezvous_waits_for_its_receiver() {
    everywhere(|| {
        let (sender, receiver) = sync_channel(0);
        assert_eq!(sender.try_send(0), Err(TrySendError::Full(0)));
        let sent = Arc::new(AtomicBool::new(false));
        let task = thread::spawn({
            let sent = Arc::clone(&sent);
            move || {
                sender.send(1).unwrap();
                sent.store(true, Ordering::SeqCst);
            }
        });
        thread::sleep(Duration::from_millis(1));
        assert!(!sent.load(Ordering::SeqCst));
        assert_eq!(receiver.recv(), Ok(1));
        task.join().unwrap();
    });
}

#[test]
fn timeouts() {
    everywhere(|| {
        let (sender, receiver) = channel();
        for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1)] {
            assert_eq!(receiver.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
        }
        let task = thread::spawn(move || sender.send(1).unwrap());
        assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(1));
        task.join().unwrap();
    });
}

#[test]
fn messages_that_nobody_receives_are_dropped() {
    everywhere(|| {
        let drops = Drops::default();
        let (sender, receiver) = channel();
        (0..10).for_each(|_| assert!(sender.send(drops.value()).is_ok()));
        drop(receiver.recv());
        assert_eq!(drops.count(), 1);
        drop(receiver);
        drop(sender);
        assert_eq!(drops.count(), 10);
    });
}

#[test]
fn texts_and_bounds_are_those_of_std() {
    let ((ours, _or), (theirs, _tr)) = (channel::<u8>(), std::sync::mpsc::channel::<u8>());
    assert_eq!(format!("{ours:?} {_or:?}"), format!("{theirs:?} {_tr:?}"));
    assert_eq!(format!("{:?}", _or.iter()), format!("{:?}", _tr.iter()));
    let ((ours, _or), (theirs, _tr)) =
        (sync_channel::<u8>(1), std::sync::mpsc::sync_channel::<u8>(1));
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    assert_eq!(format!("{:?}", _or.into_iter()), format!("{:?}", _tr.into_iter()));
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    type NotSync = std::cell::Cell<u8>;
    send::<Receiver<NotSync>>();
    send::<heist::sync::mpsc::Sender<NotSync>>();
    sync::<heist::sync::mpsc::Sender<NotSync>>();
    sync::<SyncSender<NotSync>>();
}

/// Not with the last sender, which may stay for long.
#[test]
fn what_is_left_is_dropped_with_the_receiver() {
    let message = Arc::new(());
    let (sync, bounded) = mpsc::sync_channel(2);
    let (sender, unbounded) = mpsc::channel();
    sync.send(message.clone()).unwrap();
    sender.send(message.clone()).unwrap();
    assert_eq!(Arc::strong_count(&message), 3);
    drop(bounded);
    assert_eq!(Arc::strong_count(&message), 2);
    drop(unbounded.into_iter());
    assert_eq!(Arc::strong_count(&message), 1);
    assert!(sync.send(message.clone()).is_err() && sender.send(message.clone()).is_err());
}
