//! Messages get through, once, in order.

use super::*;

/// Go's test of a channel, for a range of capacities: it blocks, it tries, it
/// drains after the end, it keeps the order, and nothing is lost.
#[test]
fn every_capacity() {
    let check = |capacity: usize| {
        let (s, r) = bounded::<usize>(capacity);
        assert_eq!((s.capacity(), s.len(), r.is_empty()), (Some(capacity), 0, true));

        // It blocks while it is empty, and does not when it is not.
        let blocked = Arc::new(AtomicBool::new(true));
        let receiver = {
            let (r, blocked) = (r.clone(), blocked.clone());
            go(move || {
                let message = r.recv();
                blocked.store(false, Ordering::SeqCst);
                message
            })
        };
        (0..3).for_each(|_| thread::yield_now());
        assert!(blocked.load(Ordering::SeqCst), "nothing was sent");
        s.send(7).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));

        // It holds as many as it should.
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        (0..capacity).for_each(|i| s.try_send(i).unwrap());
        assert_eq!(s.try_send(0), Err(TrySendError::Full(0)));
        assert_eq!((s.len(), s.is_full()), (capacity, true));

        // It blocks while it is full.
        let sender = {
            let s = s.clone();
            go(move || s.send(capacity))
        };
        (0..3).for_each(|_| thread::yield_now());
        assert!(!sender.is_finished());
        assert_eq!(r.recv(), Ok(0));
        assert_eq!(sender.join().unwrap(), Ok(()));

        // It is drained after the end, in order.
        drop(s);
        assert_eq!(r.iter().collect::<Vec<_>>(), (1..=capacity).collect::<Vec<_>>());
        assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
    };
    watched(|| {
        runtime(1).run(|| (0..200).for_each(check));
        runtime(4).run(|| (0..200).for_each(check));
    });
}

#[test]
fn first_in_first_out_for_every_capacity() {
    let check = |capacity: usize| {
        let (s, r) = bounded(capacity);
        let sender = go(move || (0..100).for_each(|i| s.send(i).unwrap()));
        assert_eq!(r.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        sender.join().unwrap();
    };
    watched(|| {
        runtime(1).run(|| (0..200).for_each(check));
        runtime(4).run(|| (0..200).for_each(check));
    });
}

/// Four senders of a thousand, four receivers: all of it arrives, once.
#[test]
fn what_comes_out_is_what_went_in() {
    everywhere(|| {
        let step = if cfg!(debug_assertions) { 20 } else { 1 };
        for capacity in (0..200).step_by(step) {
            let (s, r) = bounded(capacity);
            for i in 0..4 {
                let s = s.clone();
                let _ = go(move || (0..1000).for_each(|j| s.send(i * 1000 + j).unwrap()));
            }
            drop(s);
            let receivers: Vec<_> = (0..4)
                .map(|_| {
                    let r = r.clone();
                    go(move || r.iter().collect::<Vec<u32>>())
                })
                .collect();
            let mut all: Vec<u32> = receivers.into_iter().flat_map(|r| r.join().unwrap()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..4000).collect::<Vec<_>>(), "capacity {capacity}");
        }
    });
}

/// Likewise those who have something to give, with room for some of it and without.
#[test]
fn those_who_wait_to_send_are_served_in_turn() {
    for capacity in [0, 1, 7] {
        runtime(1).run(|| {
            let (s, r) = bounded::<usize>(capacity);
            for i in 0..100 {
                let s = s.clone();
                drop(go(move || s.send(i).unwrap()));
                (0..2).for_each(|_| thread::yield_now());
            }
            let got: Vec<_> = (0..100).map(|_| r.recv().unwrap()).collect();
            assert_eq!(got, (0..100).collect::<Vec<_>>(), "capacity {capacity}");
        });
    }
}

/// Some of them by a select.
#[test]
fn those_who_wait_in_a_select_are_served_in_turn() {
    runtime(1).run(|| {
        let (s, r) = bounded::<usize>(0);
        let never = chan::never::<usize>();
        let waiting: Vec<_> = (0..100)
            .map(|i| {
                let (r, never) = (r.clone(), never.clone());
                let waiter = go(move || match i % 2 {
                    0 => r.recv(),
                    _ => {
                        select! { recv(never) -> message => message, recv(r) -> message => message }
                    }
                });
                (0..4).for_each(|_| thread::yield_now());
                waiter
            })
            .collect();
        (0..100).for_each(|i| s.send(i).unwrap());
        let got: Vec<_> = waiting.into_iter().map(|w| w.join().unwrap().unwrap()).collect();
        assert_eq!(got, (0..100).collect::<Vec<_>>());
    });
}

/// Who is woken by a channel is next on its P, before those who were queued.
#[test]
fn who_is_woken_runs_next() {
    type Wake = (&'static str, fn(&Sender<u8>, &Receiver<u8>), fn(&Sender<u8>, &Receiver<u8>));
    let wakes: [Wake; 4] = [
        ("a receiver", |_, r| assert_eq!(r.recv(), Ok(1)), |s, _| s.send(1).unwrap()),
        ("a sender", |s, _| s.send(1).unwrap(), |_, r| assert_eq!(r.recv(), Ok(1))),
        ("a select", |_, r| select! { recv(r) -> _ => () }, |s, _| s.send(1).unwrap()),
        (
            "by a select",
            |_, r| assert_eq!(r.recv(), Ok(1)),
            |s, _| select! { send(s, 1) -> _ => () },
        ),
    ];
    for (what, wait, wake) in wakes {
        runtime(1).run(|| {
            let (s, r) = bounded(0);
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let note = |name: &'static str| {
                let order = order.clone();
                move || order.lock().unwrap().push(name)
            };
            let (its_s, its_r, woken) = (s.clone(), r.clone(), note("woken"));
            let waiter = go(move || {
                wait(&its_s, &its_r);
                woken();
            });
            (0..4).for_each(|_| thread::yield_now());
            let queued = [go(note("queued")), go(note("queued"))];
            wake(&s, &r);
            waiter.join().unwrap();
            queued.into_iter().for_each(|g| g.join().unwrap());
            assert_eq!(order.lock().unwrap()[0], "woken", "{what}");
        });
    }
}

#[test]
fn those_who_wait_are_served_in_turn() {
    runtime(1).run(|| {
        let (s, r) = bounded::<usize>(0);
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let r = r.clone();
                let waiter = go(move || r.recv().unwrap());
                (0..2).for_each(|_| thread::yield_now());
                waiter
            })
            .collect();
        (0..100).for_each(|i| s.send(i).unwrap());
        let got: Vec<_> = waiting.into_iter().map(|w| w.join().unwrap()).collect();
        assert_eq!(got, (0..100).collect::<Vec<_>>());
    });
}

/// Go's chain of goroutines, each of which adds one.
#[test]
fn a_chain_of_ten_thousand() {
    watched(|| {
        runtime(2).run(|| {
            let (leftmost, mut left) = bounded::<usize>(0);
            for _ in 0..10_000 {
                let (s, r) = bounded(0);
                let from = std::mem::replace(&mut left, r);
                let _ = go(move || s.send(from.recv().unwrap() + 1).unwrap());
            }
            leftmost.send(0).unwrap();
            assert_eq!(left.recv(), Ok(10_000));
        });
    });
}

#[test]
fn messages_of_no_size_and_of_a_megabyte() {
    everywhere(|| {
        for capacity in [0, 1, 10] {
            let (s, r) = bounded::<()>(capacity);
            let sender = go(move || (0..1000).for_each(|_| s.send(()).unwrap()));
            assert_eq!(r.iter().count(), 1000);
            sender.join().unwrap();
        }
        let (s, r) = unbounded::<()>();
        (0..1000).for_each(|_| s.send(()).unwrap());
        assert_eq!(r.try_iter().count(), 1000);
    });
    // On stacks that hold a few of them.
    watched(|| {
        let rt = heist::Builder::new().max_procs(2).stack_size(16 << 20).build().unwrap();
        rt.run(|| {
            for (s, r) in [bounded::<[u8; 1 << 20]>(0), bounded(2), unbounded()] {
                let sender = go(move || (0..5).for_each(|i| s.send([i; 1 << 20]).unwrap()));
                for i in 0..5 {
                    let message = if i % 2 == 0 {
                        r.recv()
                    } else {
                        select! { recv(r) -> message => message }
                    };
                    assert!(message.unwrap().iter().all(|byte| *byte == i));
                }
                sender.join().unwrap();
            }
        });
    });
}

/// Of messages that fill a good part of a stack, the goroutine that sends or receives them
/// needs no more than it has itself.
#[test]
fn messages_of_a_quarter_of_a_stack() {
    // Without optimisation every function on the way has copies of its own, and stacks are as
    // much larger.
    const SIZE: usize = 32 << 10;
    type Message = [u8; SIZE];

    // Each in a frame of its own, with the message and the result.
    #[inline(never)]
    fn send(s: &Sender<Message>, i: u8) {
        s.send([i; SIZE]).unwrap();
    }
    #[inline(never)]
    fn send_timeout(s: &Sender<Message>, i: u8) {
        s.send_timeout([i; SIZE], Duration::from_secs(60)).unwrap();
    }
    #[inline(never)]
    fn try_send(s: &Sender<Message>, i: u8) {
        while s.try_send([i; SIZE]).is_err() {}
    }
    #[inline(never)]
    fn select_send(s: &Sender<Message>, i: u8) {
        select! {
            send(s, [i; SIZE]) -> sent => sent.unwrap(),
            recv(chan::never::<Message>()) -> _ => unreachable!(),
        }
    }
    #[inline(never)]
    fn selected_send(s: &Sender<Message>, i: u8) {
        let mut select = chan::Select::new();
        select.send(s);
        select.select().send(s, [i; SIZE]).unwrap();
    }
    #[inline(never)]
    fn recv(r: &Receiver<Message>) -> u8 {
        r.recv().unwrap()[SIZE - 1]
    }
    #[inline(never)]
    fn recv_timeout(r: &Receiver<Message>) -> u8 {
        r.recv_timeout(Duration::from_secs(60)).unwrap()[SIZE - 1]
    }
    #[inline(never)]
    fn next(r: &Receiver<Message>) -> u8 {
        r.iter().next().unwrap()[SIZE - 1]
    }
    #[inline(never)]
    fn select_recv(r: &Receiver<Message>) -> u8 {
        select! {
            recv(r) -> message => message.unwrap()[SIZE - 1],
            recv(chan::never::<u8>()) -> _ => unreachable!(),
        }
    }
    #[inline(never)]
    fn selected_recv(r: &Receiver<Message>) -> u8 {
        let mut select = chan::Select::new();
        select.recv(r);
        select.select().recv(r).unwrap()[SIZE - 1]
    }
    #[inline(never)]
    fn try_recv(r: &Receiver<Message>) -> u8 {
        loop {
            if let Some(message) = r.try_iter().next() {
                return message[SIZE - 1];
            }
        }
    }
    everywhere(|| {
        for (s, r) in [bounded(0), bounded(2), unbounded()] {
            let sender = go(move || {
                let ways = [send, send_timeout, select_send, selected_send, try_send];
                for i in 0..60 {
                    ways[usize::from(i) % ways.len()](&s, i);
                }
            });
            let ways = [next, recv, select_recv, recv_timeout, selected_recv, try_recv];
            for i in 0..60 {
                // Two that only try would not meet.
                let tries = i % 5 == 4 && i % 6 == 5;
                let way = if tries { next } else { ways[usize::from(i) % ways.len()] };
                assert_eq!(way(&r), i);
            }
            sender.join().unwrap();
        }
    });
}

#[test]
fn goroutines_and_threads_and_other_runtimes() {
    watched(|| {
        for capacity in [0, 4] {
            let (there, back) = (bounded(capacity), bounded(capacity));
            let others = [runtime(1), runtime(2)];
            for rt in &others {
                let (r, s) = (there.1.clone(), back.0.clone());
                let _ = rt.go(move || r.iter().for_each(|i: usize| s.send(i + 1).unwrap()));
            }
            let thread = {
                let (r, s) = (there.1.clone(), back.0.clone());
                std::thread::spawn(move || r.iter().for_each(|i: usize| s.send(i + 1).unwrap()))
            };
            let s = there.0;
            let sender = go(move || (0..3000).for_each(|i| s.send(i).unwrap()));
            let sum: usize = (0..3000).map(|_| back.1.recv().unwrap()).sum();
            assert_eq!(sum, (1..=3000).sum());
            sender.join().unwrap();
            thread.join().unwrap();
        }
    });
}

#[test]
fn clones_are_the_same_channel() {
    let (s, r) = bounded::<i32>(1);
    let (s2, r2) = bounded::<i32>(1);
    assert!(s.same_channel(&s.clone()) && r.same_channel(&r.clone()));
    assert!(!s.same_channel(&s2) && !r.same_channel(&r2));
    assert!(chan::never::<()>().same_channel(&chan::never()));
    let after = chan::after(A_WHILE);
    assert!(after.same_channel(&after.clone()));
    assert!(!after.same_channel(&chan::after(A_WHILE)));
    assert!(!after.same_channel(&chan::tick(A_WHILE)));
}

#[test]
fn iterators() {
    everywhere(|| {
        let (s, r) = unbounded();
        (0..5).for_each(|i| s.send(i).unwrap());
        assert_eq!(r.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let sender = go(move || (5..8).for_each(|i| s.send(i).unwrap()));
        let mut seen = Vec::new();
        for i in &r {
            seen.push(i);
        }
        assert_eq!(seen, [5, 6, 7]);
        let mut rest = r.into_iter();
        assert_eq!((rest.next(), rest.next()), (None, None));
        sender.join().unwrap();
    });
}
