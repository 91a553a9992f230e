//! Goroutines that block their thread.

use super::common::{in_a_process, stderr, until, watched};
use heist::sync::atomic::{AtomicUsize, Ordering};
use heist::{Builder, blocking, chan, go, runtime, syscall, time};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many goroutines on few Ps that all of them wait for all of them, each with its
/// thread: that ends only if every one gets a thread of its own.
fn all_block_at_once(procs: usize, call: fn(&dyn Fn())) {
    const ALL: usize = 16;
    let run = || {
        let here = Arc::new(std::sync::Barrier::new(ALL));
        let passed = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..ALL)
            .map(|_| {
                let (here, passed) = (here.clone(), passed.clone());
                go(move || {
                    for _ in 0..3 {
                        call(&|| {
                            here.wait();
                        });
                        passed.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
        assert_eq!(passed.load(Ordering::SeqCst), 3 * ALL);
    };
    watched(|| Builder::new().max_procs(procs).build().unwrap().run(run));
}

#[test]
fn declared_calls_that_block() {
    for procs in [1, 2, 8] {
        all_block_at_once(procs, |f| syscall(f));
    }
}

#[test]
fn calls_that_give_their_p_up_at_once() {
    for procs in [1, 2, 8] {
        all_block_at_once(procs, |f| blocking(f));
    }
}

#[test]
fn calls_that_nobody_declared() {
    for procs in [1, 2, 8] {
        all_block_at_once(procs, |f| f());
    }
}

#[test]
fn a_read_from_an_empty_pipe_that_nobody_declared() {
    let run = || {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let read = go(move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            byte[0]
        });
        heist::thread::yield_now(); // the reader blocks the only P
        let (send, receive) = chan::bounded(0);
        drop(go(move || send.send(7u8).unwrap()));
        writer.write_all(&[receive.recv().unwrap()]).unwrap();
        assert_eq!(read.join().unwrap(), 7);
        assert!(runtime::stats().retakes > 0);
    };
    watched(|| Builder::new().max_procs(1).build().unwrap().run(run));
}

/// Eight in calls of 10 to 1,000 µs: whether more than two Ps' worth were ever in one.
/// A hundred block their threads, nobody declares it, and each keeps its P until sysmon has seen
/// that. A sleeper whose time comes meanwhile does not wait until all have begun.
#[test]
fn a_sleeper_goes_before_those_who_are_going_to_block() {
    const ALL: usize = 100;
    for procs in [1, 2] {
        let run = || {
            let begun = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..ALL)
                .map(|_| {
                    let begun = begun.clone();
                    go(move || {
                        begun.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(50));
                    })
                })
                .collect();
            time::sleep(Duration::from_micros(500));
            let begun = begun.load(Ordering::SeqCst);
            all.into_iter().for_each(|g| g.join().unwrap());
            assert!(begun < ALL, "it came last, on {procs} Ps");
        };
        watched(|| Builder::new().max_procs(procs).build().unwrap().run(run));
    }
}

fn eight_in_short_calls(call: fn(&dyn Fn())) -> bool {
    let inside = Arc::new(AtomicUsize::new(0));
    let peak = Arc::new(AtomicUsize::new(0));
    let all: Vec<_> = (0..8)
        .map(|i| {
            let (inside, peak) = (inside.clone(), peak.clone());
            go(move || {
                for round in 0..1_000 {
                    if round >= 20 && peak.load(Ordering::SeqCst) > 2 {
                        break;
                    }
                    // A new slice: nobody loses its P because the old one is over.
                    heist::thread::yield_now();
                    let micros = 10 + (i * 131 + round * 97) % 990;
                    call(&|| {
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        peak.fetch_max(now, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_micros(micros));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            })
        })
        .collect();
    all.into_iter().for_each(|g| g.join().unwrap());
    peak.load(Ordering::SeqCst) > 2 && runtime::stats().retakes > 0
}

const DECLARED_OR_NOT: [fn(&dyn Fn()); 2] = [|f| syscall(f), |f| f()];

/// They lose their Ps there: otherwise no more than two would ever be in a call.
#[test]
fn eight_in_short_calls_on_two_ps() {
    for call in DECLARED_OR_NOT {
        let runtime = Builder::new().max_procs(2).build().unwrap();
        watched(|| assert!(runtime.run(move || eight_in_short_calls(call))));
    }
}

/// Also if sysmon has had nothing to do for so long that it looks every 10 ms, when none of
/// the calls that it saw the last time lasts any more.
#[test]
fn short_calls_after_a_time_without_any() {
    let without_any = || {
        let end = Instant::now() + Duration::from_millis(200);
        let busy = move || {
            while Instant::now() < end {
                heist::thread::yield_now();
            }
        };
        let all: Vec<_> = (0..4).map(|_| go(busy)).collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    };
    for call in DECLARED_OR_NOT {
        let runtime = Builder::new().max_procs(2).build().unwrap();
        let run = move || {
            without_any();
            eight_in_short_calls(call)
        };
        watched(|| assert!(runtime.run(run)));
    }
}

#[test]
fn a_call_returns_its_value_and_its_panic() {
    let run = || {
        assert_eq!(syscall(|| 1) + blocking(|| 2), 3);
        let panic = go(|| syscall(|| panic!("in a call"))).join().unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "in a call");
        let panic = go(|| blocking(|| panic!("in another"))).join().unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "in another");
    };
    watched(|| Builder::new().max_procs(1).build().unwrap().run(run));
    // On a plain thread they are plain calls.
    assert_eq!(syscall(|| 1) + blocking(|| 2), 3);
}

#[test]
fn the_dump_tells_who_is_in_a_call() {
    for call in [syscall::<Box<dyn FnOnce()>, ()>, blocking::<Box<dyn FnOnce()>, ()>] {
        let run = || {
            let (reader, writer) = std::io::pipe().unwrap();
            let builder = heist::thread::Builder::new().name("who calls".into());
            let read = move || drop({ reader }.read(&mut [0]));
            let caller = builder.spawn(move || call(Box::new(read))).unwrap();
            let dumped = || heist::debug::dump().contains("'who calls' [syscall]");
            until(dumped);
            drop(writer);
            caller.join().unwrap();
        };
        watched(|| Builder::new().max_procs(2).build().unwrap().run(run));
    }
}

/// What is forbidden nowhere must work: the runtime inside of a call, calls inside
/// of calls.
#[test]
fn a_call_may_call_the_runtime() {
    let run = || {
        for call in [syscall::<fn() -> u32, u32>, blocking::<fn() -> u32, u32>] {
            let value = call(|| {
                let (send, receive) = chan::bounded(0);
                drop(go(move || send.send(5).unwrap()));
                time::sleep(Duration::from_millis(1));
                syscall(|| blocking(|| receive.recv().unwrap()))
            });
            assert_eq!(value, 5);
        }
    };
    watched(|| Builder::new().max_procs(1).build().unwrap().run(run));
}

/// Whoever waits inside of a call is known to its waker before it enters the runtime.
#[test]
fn a_wake_up_finds_one_that_waits_inside_of_a_call() {
    watched(|| {
        Builder::new().max_procs(2).build().unwrap().run(|| {
            for round in 0..5_000u32 {
                let other = go(move || round);
                assert_eq!(blocking(|| other.join().unwrap()), round);
            }
        });
    });
}

/// Timers and sockets of plain threads are looked after by the runtime, also if each of
/// its threads is in a call and nobody sleeps that could be told to.
#[test]
fn plain_threads_are_looked_after_while_all_threads_block() {
    match in_a_process() {
        None => watched(|| {
            go(|| runtime::set_max_procs(1)).join().unwrap();
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let blocked = go(move || blocking(|| reader.read(&mut [0]).unwrap()));
            // Long enough that sysmon sleeps deeply, and threads that are not needed end.
            std::thread::sleep(Duration::from_secs(11));
            chan::after(Duration::from_millis(1)).recv().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let listener = heist::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let client = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                std::net::TcpStream::connect(address).unwrap()
            });
            let server = listener.accept().unwrap();
            writer.write_all(b"x").unwrap();
            assert_eq!(blocked.join().unwrap(), 1);
            drop((server, client.join().unwrap()));
        }),
        Some(output) => {
            assert!(output.status.success(), "{}", stderr(&output));
        }
    }
}

#[test]
fn errno_survives_the_way_back() {
    let run = || {
        drop(go(|| (0..1000).for_each(|_| heist::thread::yield_now())));
        for _ in 0..20 {
            let result = blocking(|| {
                std::thread::sleep(Duration::from_micros(50));
                // SAFETY: a bad descriptor is an error.
                unsafe { libc_close(-1) }
            });
            assert_eq!(result, -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(9), "EBADF");
        }
    };
    watched(|| Builder::new().max_procs(1).build().unwrap().run(run));
}

unsafe extern "C" {
    #[link_name = "close"]
    fn libc_close(fd: i32) -> i32;
}

/// Every P is with somebody who computes and keeps it: an event from the network is
/// found by sysmon, and whoever waits for it is made runnable.
#[test]
fn the_network_is_looked_at_while_nobody_else_can() {
    const PS: usize = 2;
    watched(|| {
        let runtime = Builder::new().max_procs(PS).build().unwrap();
        let (reader, mut writer) = heist::io::pipe().unwrap();
        let reading = heist::thread::Builder::new().name("the reader".into());
        let state = || {
            let dump = heist::debug::dump();
            let line = dump.lines().find(|line| line.contains("'the reader'"))?;
            Some(line.split(['[', ']', ',']).nth(1)?.to_owned())
        };
        let (stop, busy) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (read, hogs) = runtime.run(|| {
            let read = reading.spawn(move || {
                let mut byte = [0];
                { reader }.read_exact(&mut byte).unwrap();
                byte[0]
            });
            while state().is_none_or(|state| !state.contains("wait")) {
                heist::thread::yield_now();
            }
            let hog = || {
                let (stop, busy) = (stop.clone(), busy.clone());
                go(move || {
                    heist::no_preempt(|| {
                        busy.fetch_add(1, Ordering::SeqCst);
                        while stop.load(Ordering::SeqCst) == 0 {
                            std::hint::spin_loop();
                        }
                    });
                })
            };
            (read.unwrap(), (0..PS).map(|_| hog()).collect::<Vec<_>>())
        });
        // From here on a plain thread acts: no P is free.
        while busy.load(Ordering::SeqCst) < PS {
            std::thread::yield_now();
        }
        std::io::Write::write_all(&mut writer, &[7]).unwrap();
        while state().is_some_and(|state| state != "runnable") {
            std::thread::yield_now();
        }
        assert_eq!(state().as_deref(), Some("runnable"), "nobody can have run it yet");
        stop.store(1, Ordering::SeqCst);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
        assert_eq!(read.join().unwrap(), 7);
    });
}
