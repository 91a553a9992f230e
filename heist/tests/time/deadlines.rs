//! Waits that the clock may end: `park_timeout`, `timeout`.

use super::*;

#[test]
fn park_timeout_ends_by_itself_or_by_the_token() {
    everywhere(|| {
        let begin = Instant::now();
        thread::park_timeout(millis(2));
        thread::current().unpark();
        thread::park_timeout(HOUR);
        thread::current().unpark();
        thread::park_timeout(Duration::MAX);
        assert!(begin.elapsed() < HOUR);
        thread::park_timeout(Duration::ZERO);

        let parker = thread::spawn(|| thread::park_timeout(HOUR));
        parker.thread().unpark();
        parker.join().unwrap();
    });
}

/// The clock and the token come at the same moment, over and over: no park is
/// left asleep, and no token is lost.
#[test]
fn park_timeout_against_unpark() {
    watched(|| {
        runtime(8).run(|| {
            let pairs: Vec<_> = (0..8u64)
                .map(|pair| {
                    thread::spawn(move || {
                        let passes = Arc::new(AtomicUsize::new(0));
                        let parker = thread::spawn({
                            let passes = passes.clone();
                            move || {
                                for i in 0..2000u64 {
                                    thread::park_timeout(Duration::from_micros((i + pair) % 30));
                                    passes.fetch_add(1, Ordering::SeqCst);
                                }
                                // Only a token ends this one.
                                while passes.load(Ordering::SeqCst) < usize::MAX / 2 {
                                    thread::park();
                                }
                            }
                        });
                        let mut seen = 0;
                        while seen < 2000 {
                            parker.thread().unpark();
                            thread::yield_now();
                            seen = passes.load(Ordering::SeqCst);
                        }
                        passes.store(usize::MAX / 2, Ordering::SeqCst);
                        parker.thread().unpark();
                        parker.join().unwrap();
                    })
                })
                .collect();
            pairs.into_iter().for_each(|pair| pair.join().unwrap());
        });
    });
}

#[test]
fn a_timeout_gives_the_value_or_says_that_time_is_over() {
    everywhere(|| {
        assert_eq!(time::timeout(HOUR, || 42), Ok(42));
        assert_eq!(time::timeout(Duration::MAX, || "for ever"), Ok("for ever"));
        let error = time::timeout(millis(1), || time::sleep(millis(100))).unwrap_err();
        assert_eq!(error.to_string(), "deadline has elapsed");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
    });
}

#[test]
fn a_timeout_passes_a_panic_on() {
    everywhere(|| {
        let outcome = std::panic::catch_unwind(|| {
            time::timeout(HOUR, || std::panic::resume_unwind(Box::new("inner")))
        });
        let payload: Box<dyn std::any::Any + Send> =
            outcome.map(|_: Result<(), _>| ()).unwrap_err();
        assert_eq!(text(&*payload), "inner");
    });
}

/// The value and the clock come at the same moment.
#[test]
fn a_timeout_against_its_function() {
    watched(|| {
        runtime(8).run(|| {
            let mut in_time = 0;
            for i in 0..2000u64 {
                let outcome = time::timeout(Duration::from_micros(20 + i % 60), || {
                    time::sleep(Duration::from_micros(40));
                    7
                });
                in_time += usize::from(outcome == Ok(7));
            }
            assert!(in_time < 2000, "some were too late");
        });
    });
}
