//! Knowing that an operation is ready, without doing it.

use super::*;

#[test]
fn each_way_to_ask() {
    everywhere(|| {
        let (s, r) = bounded(1);
        let mut receives = Select::new();
        receives.recv(&r);
        let mut sends = Select::new();
        sends.send(&s);
        assert!(receives.try_ready().is_err());
        assert!(receives.ready_timeout(Duration::from_millis(1)).is_err());
        assert!(receives.ready_deadline(Instant::now()).is_err());
        assert_eq!(sends.ready(), 0);
        s.send(1).unwrap();
        assert_eq!((receives.ready(), receives.try_ready()), (0, Ok(0)));
        assert!(sends.try_ready().is_err());
        assert_eq!(r.recv(), Ok(1));
        assert_eq!(sends.ready_timeout(CENTURIES), Ok(0));
        drop(s);
        assert_eq!(receives.ready(), 0);
    });
}

#[test]
fn those_who_ask_are_woken() {
    everywhere(|| {
        for capacity in [0, 1] {
            let (s, r) = bounded(capacity);
            let asks = {
                let r = r.clone();
                go(move || {
                    let mut sel = Select::new();
                    sel.recv(&r);
                    (sel.ready(), r.recv())
                })
            };
            (0..10).for_each(|_| thread::yield_now());
            s.send(1).unwrap();
            assert_eq!(asks.join().unwrap(), (0, Ok(1)));

            (0..capacity).for_each(|i| s.send(i).unwrap());
            let asks = {
                let s = s.clone();
                go(move || {
                    let mut sel = Select::new();
                    sel.send(&s);
                    (sel.ready(), s.send(2))
                })
            };
            (0..10).for_each(|_| thread::yield_now());
            (0..capacity).for_each(|i| assert_eq!(r.recv(), Ok(i)));
            assert_eq!(r.recv(), Ok(2));
            assert_eq!(asks.join().unwrap(), (0, Ok(())));
        }
    });
}

#[test]
fn the_end_and_the_clock_are_ready() {
    everywhere(|| {
        let (s, r) = bounded::<i32>(0);
        let asks = go(move || {
            let mut sel = Select::new();
            sel.recv(&r);
            sel.ready()
        });
        (0..10).for_each(|_| thread::yield_now());
        drop(s);
        assert_eq!(asks.join().unwrap(), 0);
        let (_s, r) = bounded::<i32>(0);
        let after = chan::after(A_WHILE);
        let mut sel = Select::new();
        sel.recv(&r);
        let clock = sel.recv(&after);
        assert_eq!(sel.ready(), clock);
        assert!(after.try_recv().is_ok());
    });
}
