//! A runtime that ends takes its goroutines out of the queues.

use super::*;

#[test]
fn waiting_goroutines_leave_their_queues() {
    watched(|| {
        let drops = Drops::default();
        let (s, r) = bounded(0);
        let (full, _kept) = bounded(1);
        full.send(drops.value()).unwrap();
        let waiting = Arc::new(AtomicUsize::new(0));
        let rt = runtime(2);
        for i in 0..40 {
            let (r, full, drops) = (r.clone(), full.clone(), drops.clone());
            let waiting = waiting.clone();
            let _ = rt.go(move || {
                waiting.fetch_add(1, Ordering::SeqCst);
                match i % 5 {
                    0 => drop(r.recv()),
                    1 => drop(r.recv_timeout(CENTURIES)),
                    2 => drop(full.send(drops.value())),
                    3 => drop(full.send_timeout(drops.value(), CENTURIES)),
                    _ => select! {
                        recv(r) -> message => drop(message),
                        send(full, drops.value()) -> sent => drop(sent),
                        recv(chan::after(CENTURIES)) -> _ => {}
                    },
                }
                unreachable!("nobody sends or receives");
            });
        }
        until(|| waiting.load(Ordering::SeqCst) == 40);
        std::thread::sleep(A_WHILE);
        drop(rt);
        // Nobody is left: a sender finds no receiver, and the other way round.
        assert!(matches!(s.try_send(drops.value()), Err(TrySendError::Full(_))));
        drop(full.try_send(drops.value()));
        // Sixteen of senders, and the two that came back.
        assert_eq!(drops.count(), 18);
        drop((s, r));
    });
}

/// Goroutines of one runtime end while another sends to them.
#[test]
fn messages_to_goroutines_that_end() {
    watched(|| {
        for round in 0..many(100) {
            let drops = Drops::default();
            let (s, r) = bounded(round % 2);
            let rt = runtime(2);
            for i in 0..4 {
                let r = r.clone();
                let _ = rt.go(move || {
                    loop {
                        if i % 2 == 0 {
                            drop(r.recv());
                        } else {
                            select! { recv(r) -> m => drop(m), recv(chan::never::<()>()) -> _ => {} }
                        }
                    }
                });
            }
            let stop = Arc::new(AtomicBool::new(false));
            let sender = {
                let (drops, stop) = (drops.clone(), stop.clone());
                std::thread::spawn(move || {
                    let mut made = 0;
                    while !stop.load(Ordering::SeqCst) {
                        made += 1;
                        let _ = s.send_timeout(drops.value(), Duration::from_millis(1));
                    }
                    made
                })
            };
            std::thread::sleep(Duration::from_micros(500));
            drop(rt);
            stop.store(true, Ordering::SeqCst);
            let made = sender.join().unwrap();
            drop(r);
            assert_eq!(drops.count(), made, "each message is dropped once");
        }
    });
}

/// A goroutine is told to unwind when its message is promised and not there yet.
#[test]
fn a_message_that_comes_late() {
    watched(|| {
        let drops = Drops::default();
        let (s, r) = bounded(0);
        let rt = runtime(1);
        let _ = rt.go(move || drop(r.recv()));
        std::thread::sleep(A_WHILE);
        let late = {
            let drops = drops.clone();
            let message = move || {
                std::thread::sleep(4 * A_WHILE);
                drops.value()
            };
            std::thread::spawn(move || select! { send(s, message()) -> sent => sent.is_ok() })
        };
        std::thread::sleep(A_WHILE);
        drop(rt);
        assert!(late.join().unwrap());
        assert_eq!(drops.count(), 1);
    });
}
