//! Nobody is kept from running.

use super::*;

/// Goroutines that only try, on one P, let others run.
#[test]
fn pollers_let_others_through() {
    watched(|| {
        runtime(1).run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let (_s, empty) = bounded::<i32>(0);
            let (_, ended) = bounded::<i32>(0);
            let (full, _r) = bounded(1);
            full.send(0).unwrap();
            let never = chan::never::<i32>();
            let receivers = [0; 6].map(|_| empty.clone());
            let [r1, r2, r3, r4, r5, r6] = receivers;
            let polls: [Box<dyn Fn() + Send>; 9] = [
                Box::new(move || assert_eq!(r1.try_recv(), Err(TryRecvError::Empty))),
                Box::new(move || assert_eq!(ended.try_recv(), Err(TryRecvError::Disconnected))),
                Box::new(move || assert!(full.try_send(1).is_err())),
                Box::new(move || assert!(r2.is_empty())),
                Box::new(move || assert!(r3.is_full())),
                Box::new(move || assert_eq!(r4.try_iter().count(), 0)),
                Box::new(move || {
                    select! {
                        recv(r5) -> _ => unreachable!(),
                        recv(never) -> _ => unreachable!(),
                        default => {}
                    }
                }),
                Box::new(|| assert!(chan::after(CENTURIES).try_recv().is_err())),
                Box::new(move || assert!(r6.recv_timeout(Duration::ZERO).is_err())),
            ];
            let pollers = polls.map(|poll| {
                let stop = stop.clone();
                go(move || {
                    while !stop.load(Ordering::SeqCst) {
                        poll();
                    }
                })
            });
            let runs = go(|| (0..100).for_each(|_| thread::yield_now()));
            runs.join().unwrap();
            stop.store(true, Ordering::SeqCst);
            for poller in pollers {
                poller.join().unwrap();
            }
        });
    });
}

/// A poller that yields does not keep the sender from sending.
#[test]
fn a_poller_gets_what_it_polls_for() {
    watched(|| {
        runtime(1).run(|| {
            let (s, r) = bounded(0);
            let _ = go(move || s.send(5).unwrap());
            let got = loop {
                if let Ok(message) = r.try_recv() {
                    break message;
                }
            };
            assert_eq!(got, 5);
        });
    });
}

/// Go's test of a timer in a select that two senders flood.
#[test]
fn a_timer_gets_through_a_flood() {
    watched(|| {
        for procs in [1, 4] {
            runtime(procs).run(|| {
                let channels = [bounded::<u32>(0), bounded::<u32>(0)];
                for (s, _) in &channels {
                    let s = s.clone();
                    let _ = go(move || while s.send(1).is_ok() {});
                }
                let timeout = chan::after(A_WHILE);
                let [(_, a), (_, b)] = channels;
                loop {
                    select! {
                        recv(a) -> _ => {}
                        recv(b) -> _ => {}
                        recv(timeout) -> _ => break,
                    }
                }
            });
        }
    });
}

#[test]
fn cases_that_are_always_ready_share() {
    everywhere(|| {
        let (s1, r1) = unbounded();
        let (s2, r2) = unbounded();
        for s in [&s1, &s2] {
            (0..10_000).for_each(|_| s.send(()).unwrap());
        }
        let mut picks = [0; 2];
        for _ in 0..10_000 {
            select! {
                recv(r1) -> _ => picks[0] += 1,
                recv(r2) -> _ => picks[1] += 1,
            }
        }
        // 50 standard deviations would be 2500.
        assert!(picks.iter().all(|n| (2500..=7500).contains(n)), "{picks:?}");

        // Also beside cases that are not ready.
        let never = chan::never::<()>();
        let mut picks = [0; 3];
        for _ in 0..many(9_000) {
            select! {
                recv(never) -> _ => unreachable!(),
                send(s1, ()) -> _ => picks[0] += 1,
                recv(never) -> _ => unreachable!(),
                send(s2, ()) -> _ => picks[1] += 1,
                recv(r1) -> _ => picks[2] += 1,
            }
        }
        assert!(picks.iter().all(|n| *n > many(9_000) / 6), "{picks:?}");
    });
}

/// Also those that were not ready: two cases at one channel, whose select sleeps before
/// anybody comes.
#[test]
fn cases_that_wait_at_one_channel_share() {
    const N: usize = 400;
    watched(|| {
        runtime(1).run(|| {
            let (s, r) = bounded(0);
            let sender = go(move || {
                for _ in 0..N {
                    select! {
                        send(s, 0) -> sent => sent.unwrap(),
                        send(s, 1) -> sent => sent.unwrap(),
                    }
                }
            });
            let mut ones = 0;
            for _ in 0..N {
                // By then it sleeps.
                (0..8).for_each(|_| heist::thread::yield_now());
                ones += r.recv().unwrap();
            }
            sender.join().unwrap();
            assert!((N / 4..N * 3 / 4).contains(&ones), "{ones} of {N}");

            let (s, r) = bounded(0);
            let receiver = go(move || {
                let mut first = 0;
                for _ in 0..N {
                    select! {
                        recv(r) -> _ => first += 1,
                        recv(r) -> _ => {}
                    }
                }
                first
            });
            for _ in 0..N {
                (0..8).for_each(|_| heist::thread::yield_now());
                s.send(()).unwrap();
            }
            let first = receiver.join().unwrap();
            assert!((N / 4..N * 3 / 4).contains(&first), "{first} of {N}");
        });
    });
}

#[test]
fn a_biased_select_takes_the_first() {
    everywhere(|| {
        let (s1, r1) = unbounded();
        let (s2, r2) = unbounded();
        for s in [&s1, &s2] {
            (0..100).for_each(|i| s.send(i).unwrap());
        }
        for _ in 0..100 {
            select_biased! {
                recv(r1) -> message => assert!(message.is_ok()),
                recv(r2) -> _ => panic!("the first was ready"),
            }
        }
        assert_eq!((r1.len(), r2.len()), (0, 100));
    });
}
