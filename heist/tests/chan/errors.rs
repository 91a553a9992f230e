//! Ends, timeouts, and what errors say.

use super::*;
use std::error::Error;
use std::panic::{RefUnwindSafe, UnwindSafe};

#[test]
fn nobody_is_left() {
    everywhere(|| {
        for (s, r) in [bounded(0), bounded(2), unbounded()] {
            drop(r);
            assert_eq!(s.send(1), Err(SendError(1)));
            assert_eq!(s.try_send(1), Err(TrySendError::Disconnected(1)));
            assert_eq!(s.send_timeout(1, A_WHILE), Err(SendTimeoutError::Disconnected(1)));
        }
        for (s, r) in [bounded::<i32>(0), bounded(2), unbounded()] {
            drop(s);
            assert_eq!(r.recv(), Err(RecvError));
            assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
            assert_eq!(r.recv_timeout(A_WHILE), Err(RecvTimeoutError::Disconnected));
        }
    });
}

#[test]
fn those_who_wait_hear_of_the_end() {
    everywhere(|| {
        let (s, r) = bounded::<i32>(0);
        let receivers: Vec<_> =
            (0..5)
                .map(|i| {
                    let r = r.clone();
                    go(move || {
                        if i % 2 == 0 {
                            r.recv().is_err()
                        } else {
                            r.recv_timeout(CENTURIES).is_err()
                        }
                    })
                })
                .collect();
        (0..20).for_each(|_| thread::yield_now());
        drop(s);
        assert!(receivers.into_iter().all(|r| r.join().unwrap()));

        let (s, r) = bounded(1);
        s.send(0).unwrap();
        let senders: Vec<_> = (0..5)
            .map(|i| {
                let s = s.clone();
                go(move || s.send(i))
            })
            .collect();
        (0..20).for_each(|_| thread::yield_now());
        drop(r);
        for (i, sender) in senders.into_iter().enumerate() {
            assert_eq!(sender.join().unwrap(), Err(SendError(i)));
        }
    });
}

#[test]
fn timeouts_of_zero_and_of_centuries() {
    everywhere(|| {
        let (s, r) = bounded(0);
        assert_eq!(r.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        assert_eq!(s.send_timeout(1, Duration::ZERO), Err(SendTimeoutError::Timeout(1)));
        let past = Instant::now();
        assert_eq!(r.recv_deadline(past), Err(RecvTimeoutError::Timeout));
        assert_eq!(s.send_deadline(1, past), Err(SendTimeoutError::Timeout(1)));
        for timeout in [CENTURIES, Duration::MAX] {
            let sender = {
                let s = s.clone();
                go(move || s.send_timeout(1, timeout))
            };
            assert_eq!(r.recv_timeout(timeout), Ok(1));
            assert_eq!(sender.join().unwrap(), Ok(()));
            select! {
                recv(chan::after(timeout)) -> _ => panic!("centuries are not over"),
                recv(chan::tick(timeout)) -> _ => panic!("centuries are not over"),
                default(Duration::from_millis(1)) => {}
            }
        }
    });
}

#[test]
fn a_timeout_takes_its_time_and_leaves_nothing() {
    everywhere(|| {
        let (s, r) = bounded(0);
        let begin = Instant::now();
        assert_eq!(r.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
        assert_eq!(s.send_timeout(1, A_WHILE), Err(SendTimeoutError::Timeout(1)));
        assert!(begin.elapsed() >= 2 * A_WHILE);
        assert!(s.try_send(1).is_err() && r.try_recv().is_err(), "nobody is left in the queues");
    });
}

#[test]
fn texts_are_crossbeams() {
    let texts = [
        (SendError(1).to_string(), "sending on a disconnected channel"),
        (format!("{:?}", SendError(1)), r#""SendError(..)""#),
        (TrySendError::Full(1).to_string(), "sending on a full channel"),
        (format!("{:?}", TrySendError::Full(1)), r#""Full(..)""#),
        (TrySendError::Disconnected(1).to_string(), "sending on a disconnected channel"),
        (format!("{:?}", TrySendError::Disconnected(1)), r#""Disconnected(..)""#),
        (SendTimeoutError::Timeout(1).to_string(), "timed out waiting on send operation"),
        (format!("{:?}", SendTimeoutError::Timeout(1)), r#""SendTimeoutError(..)""#),
        (SendTimeoutError::Disconnected(1).to_string(), "sending on a disconnected channel"),
        (RecvError.to_string(), "receiving on an empty and disconnected channel"),
        (format!("{RecvError:?}"), "RecvError"),
        (TryRecvError::Empty.to_string(), "receiving on an empty channel"),
        (TryRecvError::Disconnected.to_string(), "receiving on an empty and disconnected channel"),
        (format!("{:?}", TryRecvError::Empty), "Empty"),
        (RecvTimeoutError::Timeout.to_string(), "timed out waiting on receive operation"),
        (RecvTimeoutError::Disconnected.to_string(), "channel is empty and disconnected"),
        (chan::TrySelectError.to_string(), "all operations in select would block"),
        (SelectTimeoutError.to_string(), "timed out waiting on select"),
        (format!("{:?}", unbounded::<i32>().0), "Sender { .. }"),
        (format!("{:?}", unbounded::<i32>().1), "Receiver { .. }"),
        (format!("{:?}", Select::new()), "Select { .. }"),
        (format!("{:>12}|", unbounded::<i32>().1.iter_debug()), " Iter { .. }|"),
    ];
    for (said, expected) in texts {
        assert_eq!(said, expected);
    }
}

trait IterDebug {
    fn iter_debug(&self) -> String;
}

impl<T> IterDebug for Receiver<T> {
    fn iter_debug(&self) -> String {
        format!("{:?}", self.iter())
    }
}

#[test]
fn conversions_and_methods() {
    assert_eq!(TrySendError::from(SendError(1)), TrySendError::Disconnected(1));
    assert_eq!(SendTimeoutError::from(SendError(1)), SendTimeoutError::Disconnected(1));
    assert_eq!(TryRecvError::from(RecvError), TryRecvError::Disconnected);
    assert_eq!(RecvTimeoutError::from(RecvError), RecvTimeoutError::Disconnected);
    assert!(TrySendError::Full(1).is_full() && !TrySendError::Full(1).is_disconnected());
    assert!(SendTimeoutError::Timeout(1).is_timeout());
    assert!(SendTimeoutError::Disconnected(1).is_disconnected());
    assert!(TryRecvError::Empty.is_empty() && TryRecvError::Disconnected.is_disconnected());
    assert!(RecvTimeoutError::Timeout.is_timeout());
    assert!(RecvTimeoutError::Disconnected.is_disconnected());
    assert_eq!(SendTimeoutError::Timeout(3).into_inner(), 3);
    fn is_error<E: Error>() {}
    is_error::<SendError<i32>>();
    is_error::<TrySendError<i32>>();
    is_error::<SendTimeoutError<i32>>();
    is_error::<RecvTimeoutError>();
    is_error::<chan::TrySelectError>();
}

/// What a `Cell` may not do, its channel may: be shared.
#[test]
fn bounds() {
    fn shared<T: Send + Sync + UnwindSafe + RefUnwindSafe + Clone>() {}
    shared::<Sender<std::cell::Cell<i32>>>();
    shared::<Receiver<std::cell::Cell<i32>>>();
    fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Select<'_>>();
    fn outlives_a_panic<T: UnwindSafe + RefUnwindSafe>() {}
    outlives_a_panic::<chan::SelectedOperation<'_>>();
}
