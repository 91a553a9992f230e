//! Park and unpark.

use super::*;
use std::time::{Duration, Instant};

#[test]
fn an_unpark_before_the_park_is_kept() {
    everywhere(|| {
        thread::current().unpark();
        thread::park();
        // Also for one that has not begun.
        let parker = thread::spawn(thread::park);
        parker.thread().unpark();
        parker.join().unwrap();
    });
}

#[test]
fn two_unparks_are_one_token() {
    watched(|| {
        // One P: what is spawned runs only when the spawner sleeps.
        runtime(1).run(|| {
            let me = thread::current();
            for _ in 0..100 {
                (0..3).for_each(|_| me.unpark());
                thread::park();
                let ran = Arc::new(AtomicBool::new(false));
                let waker = thread::spawn({
                    let (me, ran) = (me.clone(), ran.clone());
                    move || {
                        ran.store(true, Ordering::SeqCst);
                        me.unpark();
                    }
                });
                thread::park();
                assert!(ran.load(Ordering::SeqCst), "a second token was there");
                waker.join().unwrap();
            }
        });
    });
}

#[test]
fn unpark_of_an_ended_goroutine_reaches_nobody() {
    watched(|| {
        // One P, so that the blocks of the ended are used for the next ones.
        runtime(1).run(|| {
            let ended: Vec<thread::Thread> = (0..100)
                .map(|_| {
                    let handle = thread::spawn(|| ());
                    let thread = handle.thread().clone();
                    handle.join().unwrap();
                    thread
                })
                .collect();
            let woken = Arc::new(AtomicUsize::new(0));
            let parked: Vec<_> = (0..300)
                .map(|_| {
                    let woken = woken.clone();
                    thread::spawn(move || {
                        thread::park();
                        woken.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            // Once before they begin, then while they sleep.
            for _ in 0..10 {
                ended.iter().for_each(thread::Thread::unpark);
                thread::yield_now();
            }
            assert_eq!(woken.load(Ordering::SeqCst), 0);
            parked.iter().for_each(|handle| handle.thread().unpark());
            parked.into_iter().for_each(|handle| handle.join().unwrap());
            assert_eq!(woken.load(Ordering::SeqCst), 300);
        });
    });
}

#[test]
fn unparks_of_ended_goroutines_race_with_their_successors() {
    watched(|| {
        let runtime = runtime(4);
        let stop = AtomicBool::new(false);
        let targets: Mutex<Vec<thread::Thread>> = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let targets = targets.lock().unwrap().clone();
                        targets.iter().for_each(thread::Thread::unpark);
                    }
                });
            }
            for i in 0..many(20_000) {
                // It waits for a condition, as users of park must.
                let open = Arc::new(AtomicBool::new(false));
                let gate = open.clone();
                let handle = runtime.go(move || {
                    while !gate.load(Ordering::SeqCst) {
                        thread::park();
                    }
                    i
                });
                let thread = handle.thread().clone();
                {
                    let mut targets = targets.lock().unwrap();
                    if targets.len() > 20 {
                        targets.remove(0);
                    }
                    targets.push(thread.clone());
                }
                open.store(true, Ordering::SeqCst);
                thread.unpark();
                assert_eq!(handle.join().unwrap(), i);
            }
            stop.store(true, Ordering::SeqCst);
        });
    });
}

/// `turns` strictly alternating steps of two sides, each woken by the other.
struct PingPong {
    turn: AtomicUsize,
    turns: usize,
    sides: [std::sync::OnceLock<thread::Thread>; 2],
}

impl PingPong {
    fn new(turns: usize) -> Arc<PingPong> {
        Arc::new(PingPong { turn: AtomicUsize::new(0), turns, sides: Default::default() })
    }

    /// Both sides have said who they are before either begins.
    fn play(&self, side: usize) -> usize {
        let me = thread::current();
        self.sides[side].set(me).expect("a side is taken once");
        until(|| self.sides[1 - side].get().is_some());
        let other = self.sides[1 - side].get().unwrap();
        let mut steps = 0;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn >= self.turns {
                other.unpark();
                return steps;
            }
            if turn % 2 == side {
                steps += 1;
                self.turn.store(turn + 1, Ordering::Release);
                other.unpark();
            } else {
                thread::park();
            }
        }
    }
}

#[test]
fn goroutines_play_ping_pong_by_park_and_unpark() {
    const TURNS: usize = 200_000;
    watched(|| {
        for procs in [1, 2] {
            let runtime = runtime(procs);
            let game = PingPong::new(TURNS);
            let (ping, pong) = (game.clone(), game);
            let ping = runtime.go(move || ping.play(0));
            let pong = runtime.go(move || pong.play(1));
            assert_eq!(ping.join().unwrap() + pong.join().unwrap(), TURNS);
        }
    });
}

#[test]
fn a_goroutine_and_a_plain_thread_play_ping_pong() {
    let turns = many(20_000);
    watched(|| {
        let runtime = runtime(2);
        let game = PingPong::new(turns);
        let ping = game.clone();
        let ping = runtime.go(move || ping.play(0));
        let pong = std::thread::spawn(move || game.play(1));
        assert_eq!(ping.join().unwrap() + pong.join().unwrap(), turns);
    });
}

#[test]
fn goroutines_of_two_runtimes_play_ping_pong() {
    let turns = many(20_000);
    watched(|| {
        let (one, two) = (runtime(1), runtime(2));
        let game = PingPong::new(turns);
        let ping = game.clone();
        let ping = one.go(move || ping.play(0));
        let pong = two.go(move || game.play(1));
        assert_eq!(ping.join().unwrap() + pong.join().unwrap(), turns);
    });
}

#[test]
fn plain_threads_park_and_unpark_each_other() {
    watched(|| {
        let game = PingPong::new(1000);
        let ping = game.clone();
        let ping = std::thread::spawn(move || ping.play(0));
        let pong = std::thread::spawn(move || game.play(1));
        assert_eq!(ping.join().unwrap() + pong.join().unwrap(), 1000);
    });
}

#[test]
fn many_unparkers_wake_one_parker_for_every_message() {
    watched(|| {
        for procs in [1, 4] {
            let runtime = runtime(procs);
            let (inbox, sent) = (AtomicUsize::new(0), many(20_000));
            let received = runtime.run(|| {
                let me = thread::current();
                thread::scope(|s| {
                    for _ in 0..4 {
                        let (me, inbox) = (&me, &inbox);
                        s.spawn(move || {
                            for i in 0..sent {
                                inbox.fetch_add(1, Ordering::Release);
                                me.unpark();
                                if i % 7 == 0 {
                                    thread::yield_now();
                                }
                            }
                        });
                    }
                    let mut received = 0;
                    while received < 4 * sent {
                        match inbox.swap(0, Ordering::Acquire) {
                            0 => thread::park(),
                            n => received += n,
                        }
                    }
                    received
                })
            });
            assert_eq!(received, 4 * sent);
        }
    });
}

#[test]
#[allow(deprecated)] // they are what it is about
fn the_names_in_milliseconds_wait_as_long_as_they_say() {
    everywhere(|| {
        let begin = Instant::now();
        thread::sleep_ms(20);
        assert!(begin.elapsed() >= Duration::from_millis(20));

        thread::current().unpark();
        thread::park_timeout_ms(u32::MAX); // the token is there, and it does not wait

        let begin = Instant::now();
        let other = thread::spawn(|| thread::park_timeout_ms(20));
        other.join().unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(20));
    });
}
