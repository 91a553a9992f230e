//! The long life of a server: descriptors that run out, come back and are used
//! again, peers that misbehave, and nothing that is left at the end.

use super::*;

/// A server that echoes until its listener is closed, and then waits for those who
/// are connected.
struct Echo {
    listener: Arc<TcpListener>,
    server: thread::JoinHandle<usize>,
}

impl Echo {
    fn new() -> Echo {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let server = {
            let listener = Arc::clone(&listener);
            heist::go(move || {
                let all = WaitGroup::new();
                let mut served = 0;
                for stream in listener.incoming() {
                    served += 1;
                    let mut stream = stream.unwrap();
                    all.go(move || {
                        let mut buffer = [0; 512];
                        while let Ok(n @ 1..) = stream.read(&mut buffer) {
                            if stream.write_all(&buffer[..n]).is_err() {
                                return;
                            }
                        }
                    });
                }
                all.wait();
                served
            })
        };
        Echo { listener, server }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// How many connections it has served.
    fn drain(self) -> usize {
        self.listener.close();
        self.server.join().unwrap()
    }
}

#[test]
fn descriptors_are_closed_timed_out_and_used_again_by_many_at_once() {
    watched(|| {
        // More Ps than cores.
        runtime(8).run(|| {
            let echo = Echo::new();
            let address = echo.address();
            let all = WaitGroup::new();
            for seed in 0..8 {
                all.go(move || {
                    let mut rng = Rng(seed);
                    for round in 0..150u32 {
                        let stream = TcpStream::connect(address).unwrap();
                        one_life(stream, &mut rng, round);
                    }
                });
            }
            all.wait();
            // Behind all others in the queue, which a close empties.
            let mut last = TcpStream::connect(address).unwrap();
            last.write_all(b"x").unwrap();
            last.read_exact(&mut [0; 1]).unwrap();
            drop(last);
            assert_eq!(echo.drain(), 8 * 150 + 1);
        });
    });
}

/// What comes back is what was sent on this connection, whatever the others do.
fn one_life(stream: TcpStream, rng: &mut Rng, round: u32) {
    let stream = Arc::new(stream);
    match rng.below(5) {
        0 => {
            stream.set_read_timeout(Some(Duration::from_micros(1 + rng.below(300)))).unwrap();
            let error = (&*stream).read(&mut [0; 4]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            stream.set_read_timeout(None).unwrap();
        }
        1 => {
            let deadline = Instant::now() + Duration::from_micros(rng.below(300));
            stream.set_read_deadline(Some(deadline));
            let error = (&*stream).read(&mut [0; 4]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            stream.set_read_deadline(None);
        }
        2 => {
            let other = Arc::clone(&stream);
            let reader = heist::go(move || (&*other).read(&mut [0; 4]).unwrap_err().kind());
            if rng.below(2) == 0 {
                thread::yield_now();
            }
            stream.close();
            assert_eq!(reader.join().unwrap(), ErrorKind::ConnectionAborted);
            return;
        }
        3 => stream.set_linger(Some(Duration::ZERO)).unwrap(),
        _ => {}
    }
    for i in 0..rng.below(4) as u32 {
        let message = (round * 1000 + i).to_le_bytes();
        (&*stream).write_all(&message).unwrap();
        let mut back = [0; 4];
        (&*stream).read_exact(&mut back).unwrap();
        assert_eq!(back, message);
    }
}

/// A listener that is closed serves those who are connected to their end.
#[test]
fn a_server_drains() {
    everywhere(|| {
        let echo = Echo::new();
        let address = echo.address();
        let mut streams = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        let mut exchange = |message: &[u8; 4]| {
            for stream in &mut streams {
                stream.write_all(message).unwrap();
                let mut back = [0; 4];
                stream.read_exact(&mut back).unwrap();
                assert_eq!(&back, message);
            }
        };
        exchange(b"here");
        echo.listener.close();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        exchange(b"more");
        assert!(!echo.server.is_finished(), "it waits for them");
        exchange(b"last");
        drop(streams);
        assert_eq!(echo.drain(), 3);
    });
}

#[test]
fn many_set_deadlines_on_the_same_connections() {
    watched(|| {
        runtime(4).run(|| {
            let pairs: Arc<Vec<(TcpStream, TcpStream)>> =
                Arc::new((0..10).map(|_| pair()).collect());
            let all = WaitGroup::new();
            let readers = WaitGroup::new();
            for i in 0..10 {
                let pairs = Arc::clone(&pairs);
                readers.go(move || {
                    // Until the other end says that it is over.
                    let mut buffer = [0; 1];
                    while (&pairs[i].0).read(&mut buffer).map_or(true, |n| n > 0) {}
                });
            }
            for seed in 0..8 {
                let pairs = Arc::clone(&pairs);
                all.go(move || {
                    let mut rng = Rng(seed);
                    for _ in 0..500 {
                        let stream = &pairs[rng.below(10) as usize].0;
                        let when = Instant::now() + Duration::from_micros(rng.below(200));
                        stream.set_read_deadline((rng.below(3) > 0).then_some(when));
                        if rng.below(4) == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
            all.wait();
            for (near, far) in &*pairs {
                near.set_read_deadline(None);
                far.shutdown(Shutdown::Write).unwrap();
            }
            readers.wait();
        });
    });
}

#[test]
fn a_server_outlives_peers_that_misbehave() {
    watched(|| {
        runtime(3).run(|| {
            let echo = Echo::new();
            let address = echo.address();
            let all = WaitGroup::new();
            let silent = Arc::new(Mutex::new(Vec::new()));
            for seed in 0..60 {
                let silent = Arc::clone(&silent);
                all.go(move || {
                    let stream = TcpStream::connect(address).unwrap();
                    if let Some(stream) = misbehave(stream, &mut Rng(seed)) {
                        silent.lock().unwrap().push(stream);
                    }
                });
            }
            all.wait();
            let silent = std::mem::take(&mut *silent.lock().unwrap());
            assert!(silent.len() > 3, "{}", silent.len());
            let mut last = TcpStream::connect(address).unwrap();
            last.write_all(b"still there?").unwrap();
            last.read_exact(&mut [0; 12]).unwrap();
            drop(last);
            // Only now do they end, who have never said a thing.
            for mut stream in silent {
                stream.set_nonblocking(true).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
            assert_eq!(echo.drain(), 61);
        });
    });
}

/// Returns those that say nothing at all.
fn misbehave(stream: TcpStream, rng: &mut Rng) -> Option<TcpStream> {
    let mut stream = stream;
    match rng.below(5) {
        0 => return Some(stream),
        // One byte at a time.
        1 => {
            for i in 0..50u8 {
                stream.write_all(&[i]).unwrap();
                let mut back = [0];
                stream.read_exact(&mut back).unwrap();
                assert_eq!(back, [i]);
            }
        }
        // Garbage, and never reads: the server must wait for it and go on.
        2 => {
            stream.set_write_timeout(Some(millis(30))).unwrap();
            let garbage: Vec<u8> = (0..2_000_000).map(|_| rng.below(256) as u8).collect();
            while stream.write_all(&garbage).is_ok() {}
        }
        // Half closed: what was sent still comes back.
        3 => {
            stream.write_all(b"the last words").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut back = String::new();
            stream.read_to_string(&mut back).unwrap();
            assert_eq!(back, "the last words");
        }
        // Reset.
        _ => {
            stream.write_all(b"x").unwrap();
            stream.set_linger(Some(Duration::ZERO)).unwrap();
        }
    }
    None
}

/// In a process of its own: others need descriptors too.
#[test]
fn an_accept_loop_survives_when_descriptors_run_out() {
    let Some(output) = in_a_process() else {
        let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        watched(|| {
            runtime(2).run(|| {
                let echo = Echo::new();
                // What the runtime needs is there after this.
                let mut first = TcpStream::connect(echo.address()).unwrap();
                first.write_all(b"x").unwrap();
                first.read_exact(&mut [0; 1]).unwrap();
                let mut others: Vec<_> =
                    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
                assert!(others.len() > 20, "{}", others.len());
                // The last one goes to the client: there is none to accept it with.
                drop(others.pop());
                let mut clients = vec![TcpStream::connect(echo.address()).unwrap()];
                clients[0].set_read_timeout(Some(millis(50))).unwrap();
                clients[0].write_all(b"x").unwrap();
                let error = clients[0].read_exact(&mut [0; 1]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                clients[0].set_read_timeout(None).unwrap();
                drop(others);
                clients[0].read_exact(&mut [0; 1]).unwrap();
                drop((first, clients));
                echo.drain();
            });
        });
        return;
    };
    let stderr = stderr(&output);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches("cannot accept connections").count(), 1, "{stderr}");
}

/// In a process of its own, whose limit it lowers.
#[test]
fn who_waits_needs_no_descriptor() {
    let Some(output) = in_a_process() else {
        watched(|| {
            runtime(2).run(|| {
                let (near, far) = UnixStream::pair().unwrap();
                let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
                // SAFETY: the limit lives.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
                let all: Vec<_> =
                    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
                let reader = heist::go(move || (&near).read(&mut [0]));
                thread::sleep(millis(20));
                (&far).write_all(b"x").unwrap();
                assert_eq!(reader.join().unwrap().unwrap(), 1);
                // A runtime that finds none does without, as long as nobody waits there.
                assert_eq!(runtime(1).run(|| 7), 7);
                drop(all);
            });
            // With many there are some for others.
            let runtimes: Vec<_> = (0..40).map(|_| runtime(1)).collect();
            assert!(descriptors() < 40);
            drop(runtimes);
            let runtime = runtime(1);
            let before = descriptors();
            let (near, far) = UnixStream::pair().unwrap();
            let reader = runtime.go(move || (&near).read(&mut [0]));
            (&far).write_all(b"x").unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), 1);
            drop(far);
            assert_eq!(descriptors(), before, "it had what it needed");
        });
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
}

/// In a process of its own, so that it can count.
#[test]
fn nothing_is_left() {
    let Some(output) = in_a_process() else {
        watched(|| {
            let before = descriptors();
            for procs in [1, 4] {
                let runtime = runtime(procs);
                runtime.run(|| {
                    let echo = Echo::new();
                    let all = WaitGroup::new();
                    for _ in 0..100 {
                        let address = echo.address();
                        all.go(move || {
                            let mut stream = TcpStream::connect(address).unwrap();
                            stream.write_all(b"x").unwrap();
                            stream.read_exact(&mut [0; 1]).unwrap();
                        });
                    }
                    all.wait();
                    assert_eq!(echo.drain(), 100);
                    // Those who are waited for say so a little before they end.
                    until(|| heist::runtime::num_goroutines() == 1);
                    // And one that its runtime has to unwind.
                    let (near, far) = pair();
                    drop(waiting(move || {
                        let _far = far;
                        (&near).read(&mut [0; 1])
                    }));
                });
                drop(runtime);
                assert_eq!(descriptors(), before, "with {procs} Ps");
            }
        });
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
}

/// As many as the limit of descriptors allows for both ends, up to ten thousand.
#[test]
fn idle_connections_hold_up_nobody() {
    let Some(output) = in_a_process() else {
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let limit = rustix::process::Rlimit { current: most, maximum: most };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
        let wanted = if cfg!(debug_assertions) { 2_000 } else { 10_000 };
        let n = wanted.min(most.unwrap_or(1 << 20) as usize / 2 - 50);
        if n < wanted {
            eprintln!("{n} connections instead of {wanted}: the limit of descriptors is {most:?}");
        }
        watched(|| {
            runtime(2).run(|| {
                let echo = Echo::new();
                let mut idle = Vec::new();
                for i in 0..n {
                    idle.push(TcpStream::connect(echo.address()).unwrap());
                    // The kernel drops what does not fit into the listener's queue, and
                    // tries again a second later.
                    until(|| heist::runtime::num_goroutines() + 50 > i);
                }
                until(|| heist::runtime::num_goroutines() == n + 2);
                for i in (0..n).step_by(n / 10) {
                    idle[i].write_all(b"x").unwrap();
                    idle[i].read_exact(&mut [0; 1]).unwrap();
                }
                drop(idle);
                assert_eq!(echo.drain(), n);
            });
        });
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    eprint!("{}", stderr(&output));
}

/// A plain thread and goroutines of two runtimes on the two ends of connections.
#[test]
fn threads_and_runtimes_talk_to_each_other() {
    watched(|| {
        let (one, two) = (runtime(1), runtime(3));
        let echo = one.run(Echo::new);
        let address = echo.address();
        let talk = move || {
            let mut stream = TcpStream::connect(address).unwrap();
            for i in 0..50u32 {
                stream.write_all(&i.to_le_bytes()).unwrap();
                let mut back = [0; 4];
                stream.read_exact(&mut back).unwrap();
                assert_eq!(back, i.to_le_bytes());
            }
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(talk)).collect();
        let goroutines: Vec<_> = (0..4).map(|_| two.go(talk)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        assert_eq!(echo.drain(), 8);
    });
}

/// While all Ps compute, or are busy with goroutines that only yield, somebody looks at
/// the network all the same.
#[test]
fn busy_ps_do_not_shut_the_network_out() {
    watched(|| {
        runtime(2).run(|| {
            for (computes, rounds) in [(false, 20), (true, 5)] {
                let hogs = Hogs::start(4, move || match computes {
                    true => (0..1000).for_each(|i| assert!(std::hint::black_box(i) < 1000)),
                    false => thread::yield_now(),
                });
                let echo = Echo::new();
                let mut stream = TcpStream::connect(echo.address()).unwrap();
                for _ in 0..rounds {
                    stream.write_all(b"x").unwrap();
                    stream.read_exact(&mut [0; 1]).unwrap();
                }
                drop(stream);
                hogs.stop();
                assert_eq!(echo.drain(), 1);
            }
        });
    });
}

/// The deadline of a socket outlives the runtime that it was set in, as the socket does.
#[test]
fn deadlines_outlive_their_runtime() {
    watched(|| {
        let first = runtime(1);
        let (stream, _other, queued) = first.run(|| {
            let (stream, other) = pair();
            let waiting = stream.try_clone().unwrap();
            waiting.set_read_deadline(Some(Instant::now() + millis(300)));
            stream.set_read_deadline(Some(Instant::now() + millis(200)));
            (stream, other, waiting)
        });
        drop(first);
        let error = runtime(1).run(move || (&stream).read(&mut [0]).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // And on a plain thread.
        let error = (&queued).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}
