//! Everything at once, with more Ps than cores.

use super::*;

/// Senders and receivers of all kinds at one channel.
#[test]
fn all_kinds_at_one_channel() {
    watched(|| {
        for capacity in [0, 1, 3, usize::MAX] {
            let (s, r) = if capacity == usize::MAX { unbounded() } else { bounded(capacity) };
            let each = many(5_000);
            let received = Arc::new(AtomicUsize::new(0));
            let sum = Arc::new(AtomicUsize::new(0));
            let rt = runtime(CROWDED);
            let send = |kind: usize, s: Sender<usize>| {
                move || {
                    for i in 0..each {
                        match kind {
                            0 => s.send(i).unwrap(),
                            1 => while s.try_send(i).is_err() {},
                            2 => while s.send_timeout(i, Duration::from_micros(50)).is_err() {},
                            3 => select! { send(s, i) -> sent => sent.unwrap(), },
                            _ => {
                                let mut sel = Select::new();
                                sel.send(&s);
                                sel.select().send(&s, i).unwrap();
                            }
                        }
                    }
                }
            };
            let receive = |kind: usize, r: Receiver<usize>| {
                let (received, sum) = (received.clone(), sum.clone());
                let never = chan::never();
                move || loop {
                    let message = match kind {
                        0 => r.recv().ok(),
                        1 => match r.try_recv() {
                            Err(TryRecvError::Empty) => continue,
                            message => message.ok(),
                        },
                        2 => match r.recv_timeout(Duration::from_micros(50)) {
                            Err(RecvTimeoutError::Timeout) => continue,
                            message => message.ok(),
                        },
                        3 => select! {
                            recv(r) -> message => message.ok(),
                            recv(never) -> message => message.ok(),
                        },
                        _ => {
                            let mut sel = Select::new();
                            sel.recv(&r);
                            if sel.ready_timeout(Duration::from_micros(50)).is_err() {
                                continue;
                            }
                            match r.try_recv() {
                                Err(TryRecvError::Empty) => continue,
                                message => message.ok(),
                            }
                        }
                    };
                    let Some(message) = message else { break };
                    received.fetch_add(1, Ordering::SeqCst);
                    sum.fetch_add(message, Ordering::SeqCst);
                }
            };
            let mut goroutines = Vec::new();
            let mut threads = Vec::new();
            for kind in 0..5 {
                goroutines.push(rt.go(send(kind, s.clone())));
                goroutines.push(rt.go(receive(kind, r.clone())));
                threads.push(std::thread::spawn(send(kind, s.clone())));
                threads.push(std::thread::spawn(receive(kind, r.clone())));
            }
            drop((s, r));
            goroutines.into_iter().for_each(|g| g.join().unwrap());
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(received.load(Ordering::SeqCst), 10 * each, "capacity {capacity}");
            assert_eq!(sum.load(Ordering::SeqCst), 10 * (each * (each - 1) / 2));
        }
    });
}

/// Selects over several channels on both sides.
#[test]
fn selects_against_selects() {
    watched(|| {
        runtime(CROWDED).run(|| {
            for capacity in [0, 1] {
                let channels: Arc<Vec<_>> =
                    Arc::new((0..3).map(|_| bounded::<usize>(capacity)).collect());
                let (each, tasks) = (many(5_000), 4);
                let senders: Vec<_> = (0..tasks)
                    .map(|_| {
                        let c = channels.clone();
                        go(move || {
                            let mut sum = 0;
                            for i in 0..each {
                                select! {
                                    send(c[0].0, i) -> sent => sent.unwrap(),
                                    send(c[1].0, i) -> sent => sent.unwrap(),
                                    send(c[2].0, i) -> sent => sent.unwrap(),
                                }
                                sum += i;
                            }
                            sum
                        })
                    })
                    .collect();
                let receivers: Vec<_> = (0..tasks)
                    .map(|_| {
                        let c = channels.clone();
                        go(move || {
                            (0..each)
                                .map(|_| {
                                    select! {
                                        recv(c[2].1) -> message => message.unwrap(),
                                        recv(c[0].1) -> message => message.unwrap(),
                                        recv(c[1].1) -> message => message.unwrap(),
                                    }
                                })
                                .sum::<usize>()
                        })
                    })
                    .collect();
                let sent: usize = senders.into_iter().map(|s| s.join().unwrap()).sum();
                let received: usize = receivers.into_iter().map(|r| r.join().unwrap()).sum();
                assert_eq!(sent, received);
            }
        });
    });
}

/// Deadlines that come while messages do.
#[test]
fn messages_against_the_clock() {
    watched(|| {
        runtime(CROWDED).run(|| {
            let (s, r) = bounded(0);
            let receivers: Vec<_> = (0..4)
                .map(|_| {
                    let r = r.clone();
                    go(move || {
                        let mut count = 0;
                        loop {
                            match r.recv_timeout(Duration::from_micros(20)) {
                                Ok(()) => count += 1,
                                Err(RecvTimeoutError::Timeout) => {}
                                Err(RecvTimeoutError::Disconnected) => return count,
                            }
                        }
                    })
                })
                .collect();
            let senders: Vec<_> = (0..4)
                .map(|_| {
                    let s = s.clone();
                    go(move || {
                        let tries = 0..many(5_000);
                        tries
                            .filter(|_| s.send_timeout((), Duration::from_micros(20)).is_ok())
                            .count()
                    })
                })
                .collect();
            drop(s);
            let sent: usize = senders.into_iter().map(|s| s.join().unwrap()).sum();
            let received: usize = receivers.into_iter().map(|r| r.join().unwrap()).sum();
            assert_eq!(sent, received);
        });
    });
}
