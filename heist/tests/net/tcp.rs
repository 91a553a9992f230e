//! TCP: what std's sockets do, and Go's deadlines.

use super::*;

#[test]
fn a_stream_echoes() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = heist::go(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 1000];
            let mut total = 0;
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => return total,
                    n => stream.write_all(&buffer[..n]).unwrap(),
                }
                total += 1;
            }
        });
        let mut stream = TcpStream::connect(address).unwrap();
        for i in 0..200u32 {
            stream.write_all(&i.to_le_bytes()).unwrap();
            let mut back = [0; 4];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(u32::from_le_bytes(back), i);
        }
        drop(stream);
        assert_eq!(server.join().unwrap(), 200);
    });
}

#[test]
fn more_than_any_buffer_holds_gets_through() {
    everywhere(|| {
        let (mut client, mut server) = pair();
        let writer = heist::go(move || {
            let data: Vec<u8> = (0..10_000_000u32).map(|i| i as u8).collect();
            client.write_all(&data).unwrap();
        });
        let mut data = Vec::new();
        server.read_to_end(&mut data).unwrap();
        assert_eq!(data.len(), 10_000_000);
        assert!(data.iter().zip(0u32..).all(|(byte, i)| *byte == i as u8));
        writer.join().unwrap();
    });
}

/// Reads to the end, once whoever writes has had to wait.
fn read_late(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    heist::go(move || {
        thread::sleep(millis(20));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    })
}

/// As std's does on a blocking socket.
#[test]
fn one_write_writes_everything() {
    const BYTES: usize = 20 << 20;
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    let half = IoSlice::new(&bytes[..BYTES / 2]);
    let slices = [IoSlice::new(&[]), half, IoSlice::new(&bytes[BYTES / 2..])];
    everywhere(|| {
        let (mut near, far) = pair();
        let reader = read_late(far);
        assert_eq!(near.write(&bytes).unwrap(), BYTES);
        drop(near);
        assert!(reader.join().unwrap() == bytes);
        let (mut near, far) = pair();
        let reader = read_late(far);
        assert_eq!(near.write_vectored(&slices).unwrap(), BYTES);
        drop(near);
        assert!(reader.join().unwrap() == bytes);

        let (mut near, far) = UnixStream::pair().unwrap();
        let reader = read_late(far);
        assert_eq!(near.write(&bytes).unwrap(), BYTES);
        assert_eq!(near.write_vectored(&slices).unwrap(), BYTES);
        drop(near);
        let all = reader.join().unwrap();
        assert!(all[..BYTES] == bytes && all[BYTES..] == bytes);
    });
}

/// What was written before a write ends early is told, and the reason by the next one.
#[test]
fn a_write_that_ends_early_says_how_far_it_came() {
    let bytes = vec![0; 50 << 20];
    everywhere(|| {
        let (mut near, far) = pair();
        near.set_write_timeout(Some(millis(20))).unwrap();
        let written = near.write(&bytes).unwrap();
        assert!(0 < written && written < bytes.len());
        // The kernel may find room for more, a few times.
        let error = std::iter::repeat_with(|| near.write(&bytes)).find_map(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop((near, far));

        let (mut near, mut far) = pair();
        near.set_nonblocking(true).unwrap();
        let written = near.write(&bytes).unwrap();
        assert!(0 < written && written < bytes.len(), "it does not wait");
        near.set_nonblocking(false).unwrap();
        far.read_exact(&mut bytes.clone()[..written]).unwrap();

        near.set_write_deadline(Some(Instant::now() + millis(20)));
        let written = near.write(&bytes).unwrap();
        assert!(0 < written && written < bytes.len());
        assert_eq!(near.write(&bytes).unwrap_err().kind(), ErrorKind::TimedOut);
        drop((near, far));

        let (mut near, far) = pair();
        let reset = heist::go(move || {
            thread::sleep(millis(20));
            drop(far); // with bytes in it that nobody has read
        });
        let written = near.write(&bytes).unwrap();
        assert!(0 < written && written < bytes.len());
        assert_eq!(near.write(&bytes).unwrap_err().kind(), ErrorKind::ConnectionReset);
        reset.join().unwrap();
    });
}

#[test]
fn many_connections_at_a_time() {
    watched(|| {
        runtime(3).run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let _ = heist::go(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let _ = heist::go(move || {
                        let mut buffer = [0; 64];
                        while let Ok(n @ 1..) = stream.read(&mut buffer) {
                            stream.write_all(&buffer[..n]).unwrap();
                        }
                    });
                }
            });
            let all = WaitGroup::new();
            for i in 0..200u32 {
                all.go(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for round in 0..20 {
                        let message = (i * 100 + round).to_le_bytes();
                        stream.write_all(&message).unwrap();
                        let mut back = [0; 4];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, message);
                    }
                });
            }
            all.wait();
        });
    });
}

#[test]
fn a_connection_that_nobody_takes_is_refused() {
    everywhere(|| {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = TcpStream::connect(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = TcpStream::connect_timeout(&address, Duration::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = TcpStream::connect(&[][..] as &[SocketAddr]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = TcpStream::connect_timeout(&address, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn connecting_takes_no_longer_than_allowed() {
    everywhere(|| {
        // A queue of one that is full: further ones are not answered.
        let listener = rustix_listener();
        let address = listener.local_addr().unwrap();
        let mut kept = Vec::new();
        let error = loop {
            match TcpStream::connect_timeout(&address, millis(50)) {
                Ok(stream) => kept.push(stream),
                Err(error) => break error,
            }
            assert!(kept.len() < 100);
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

/// The longest patience that there is waits, and does not overflow.
#[test]
fn the_longest_timeout_waits() {
    everywhere(|| {
        let (client, server) = pair();
        client.set_read_timeout(Some(Duration::MAX)).unwrap();
        client.set_write_timeout(Some(Duration::MAX)).unwrap();
        let client = Arc::new(client);
        let reads = {
            let client = Arc::clone(&client);
            waiting(move || (&*client).read(&mut [0; 8]).unwrap())
        };
        (&server).write_all(b"later").unwrap();
        assert_eq!(reads.join().unwrap(), 5);
        let writes = waiting(move || (&*client).write_all(&vec![1; 30_000_000]).unwrap());
        let mut rest = vec![0; 30_000_000];
        (&server).read_exact(&mut rest).unwrap();
        writes.join().unwrap();
    });
}

/// To a queue that is full: the kernel tries again when there is room.
#[test]
fn connecting_may_take_as_long_as_it_takes() {
    everywhere(|| {
        let listener = rustix_listener();
        let address = listener.local_addr().unwrap();
        let mut kept = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, millis(50)) {
            kept.push(stream);
            assert!(kept.len() < 100);
        }
        let connects =
            heist::go(move || TcpStream::connect_timeout(&address, Duration::MAX).unwrap());
        let listener = Arc::new(TcpListener::from(listener));
        let accepts = {
            let listener = Arc::clone(&listener);
            heist::go(move || {
                let greet = |stream: std::io::Result<TcpStream>| stream.unwrap().write_all(b"x");
                listener.incoming().map(greet).filter(Result::is_ok).count()
            })
        };
        let mut stream = connects.join().unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
        listener.close();
        assert!(accepts.join().unwrap() >= 1);
    });
}

/// A listener with the shortest queue that there is.
fn rustix_listener() -> std::net::TcpListener {
    use std::os::fd::AsFd;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(listener.as_fd(), 0).unwrap();
    listener
}

#[test]
fn timeouts_are_those_of_std() {
    everywhere(|| {
        let (client, _server) = pair();
        let zero = client.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
        assert_eq!(client.read_timeout().unwrap(), None);
        client.set_read_timeout(Some(millis(20))).unwrap();
        let clone = client.try_clone().unwrap();
        assert_eq!(clone.read_timeout().unwrap(), Some(millis(20)));
        for mut stream in [&client, &clone] {
            let start = Instant::now();
            let error = stream.read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            assert!(start.elapsed() >= millis(20));
        }
        client.set_write_timeout(Some(millis(20))).unwrap();
        let error = (&client).write_all(&vec![1; 100_000_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        client.set_read_timeout(None).unwrap();
        assert_eq!(clone.read_timeout().unwrap(), None);
    });
}

#[test]
fn a_nonblocking_socket_does_not_wait() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        listener.set_nonblocking(false).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let clone = client.try_clone().unwrap();
        for mut stream in [&client, &clone] {
            assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        server.write_all(b"x").unwrap();
        let mut got = [0; 8];
        until(|| (&client).read(&mut got).is_ok());
        assert_eq!(got[0], b'x');
        // Twice in a row after a short read, too.
        for _ in 0..2 {
            assert_eq!((&client).read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn shutdown_wakes_a_reader_on_a_clone() {
    watched(|| {
        runtime(2).run(|| {
            let (client, server) = pair();
            let mut clone = client.try_clone().unwrap();
            let reader = waiting(move || clone.read(&mut [0; 8]).unwrap());
            client.shutdown(Shutdown::Read).unwrap();
            assert_eq!(reader.join().unwrap(), 0);
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!((&server).read(&mut [0; 8]).unwrap(), 0);
            assert_eq!((&client).write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn shutdown_wakes_a_writer_on_a_clone() {
    everywhere(|| {
        for how in [Shutdown::Write, Shutdown::Both] {
            let (near, _far) = pair();
            let clone = near.try_clone().unwrap();
            let writer = waiting(move || (&clone).write_all(&vec![0; 50 << 20]));
            near.shutdown(how).unwrap();
            assert_eq!(writer.join().unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
    });
}

#[test]
fn peek_leaves_it_there() {
    everywhere(|| {
        let (mut client, mut server) = pair();
        let peeker = heist::go(move || {
            let mut buffer = [0; 3];
            assert_eq!(server.peek(&mut buffer).unwrap(), 2);
            assert_eq!(server.peek(&mut buffer).unwrap(), 2);
            assert_eq!(server.read(&mut buffer).unwrap(), 2);
            assert_eq!(&buffer[..2], b"ab");
            server.set_nonblocking(true).unwrap();
            assert_eq!(server.peek(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
        client.write_all(b"ab").unwrap();
        peeker.join().unwrap();
    });
}

#[test]
fn several_slices_at_a_time() {
    everywhere(|| {
        let (mut client, mut server) = pair();
        let slices = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!(client.write_vectored(&slices).unwrap(), 7);
        let (mut a, mut b) = ([0; 2], [0; 10]);
        let n = server.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]);
        assert_eq!(n.unwrap(), 7);
        assert_eq!((&a, &b[..5]), (b"on", &b"e two"[..]));
        let many = vec![IoSlice::new(b"x"); 5000];
        let sent = client.write_vectored(&many).unwrap();
        assert!((1..=5000).contains(&sent));
    });
}

#[test]
fn options_and_formats_are_those_of_std() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    assert!(client.nodelay().unwrap());
    client.set_ttl(42).unwrap();
    assert_eq!(client.ttl().unwrap(), 42);
    listener.set_ttl(43).unwrap();
    assert_eq!(listener.ttl().unwrap(), 43);
    client.set_linger(Some(Duration::from_secs(3))).unwrap();
    assert_eq!(client.linger().unwrap(), Some(Duration::from_secs(3)));
    client.set_quickack(true).unwrap();
    assert!(client.quickack().unwrap());
    assert!(client.take_error().unwrap().is_none() && listener.take_error().unwrap().is_none());
    let (ours, ours_too) = (format!("{client:?}"), format!("{listener:?}"));
    let (client, listener) =
        (std::net::TcpStream::from(client), std::net::TcpListener::from(listener));
    assert_eq!(ours, format!("{client:?}"));
    assert_eq!(ours_too, format!("{listener:?}"));
}

#[test]
fn what_is_given_to_std_blocks_as_before() {
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
    everywhere(|| {
        let (client, server) = pair();
        client.set_read_timeout(Some(millis(20))).unwrap();
        // It has waited, so it is registered; it must not be afterwards.
        assert!((&client).read(&mut [0; 1]).is_err());
        let raw = client.as_raw_fd();
        let mut std_client = std::net::TcpStream::from(client);
        assert_eq!(std_client.as_raw_fd(), raw);
        assert_eq!(std_client.read_timeout().unwrap(), Some(millis(20)));
        assert!(std_client.read(&mut [0; 1]).is_err());
        std_client.set_read_timeout(None).unwrap();
        (&server).write_all(b"x").unwrap();
        assert_eq!(std_client.read(&mut [0; 1]).unwrap(), 1);
        let client = TcpStream::from(OwnedFd::from(std_client));
        (&server).write_all(b"y").unwrap();
        assert_eq!((&client).read(&mut [0; 1]).unwrap(), 1);
        // SAFETY: it has just been given away.
        let mut client = unsafe { TcpStream::from_raw_fd(client.into_raw_fd()) };
        drop(server);
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from(listener);
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        listener.set_nonblocking(false).unwrap();
        let listener = std::net::TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        let connect = std::thread::spawn(move || drop(std::net::TcpStream::connect(address)));
        listener.accept().unwrap();
        connect.join().unwrap();
    });
}

#[test]
fn deadlines_of_any_length_come() {
    everywhere(|| {
        let (client, _server) = pair();
        let lengths = [1, 1_000, 100_000, 1_000_000, 20_000_000, 100_000_000, 1_000_000_000];
        for nanos in lengths.map(Duration::from_nanos) {
            let deadline = Instant::now() + nanos;
            client.set_read_deadline(Some(deadline));
            let error = (&client).read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(Instant::now() >= deadline);
        }
    });
}

/// A deadline makes the block of a descriptor that the poller does not know yet; a
/// short read then says that there is nothing more.
#[test]
fn what_comes_after_a_short_read_under_a_deadline_is_read() {
    everywhere(|| {
        let (mut client, mut server) = pair();
        server.set_read_deadline(Some(Instant::now() + Duration::from_secs(60)));
        let mut buffer = [0; 64];
        client.write_all(&[1]).unwrap();
        assert_eq!(server.read(&mut buffer).unwrap(), 1);
        let writer = heist::go(move || {
            heist::time::sleep(millis(20));
            client.write_all(&[2, 3]).unwrap();
            client
        });
        assert_eq!(server.read(&mut buffer).unwrap(), 2);
        let mut client = writer.join().unwrap();
        // Who does not wait asks the kernel.
        server.set_nonblocking(true).unwrap();
        client.write_all(&[4]).unwrap();
        until(|| server.peek(&mut [0]).is_ok());
        assert_eq!(server.read(&mut buffer).unwrap(), 1);
    });
}

#[test]
fn a_past_deadline_fails_calls_until_it_is_cleared() {
    everywhere(|| {
        let (client, server) = pair();
        (&server).write_all(b"ab").unwrap();
        client.set_deadline(Some(Instant::now()));
        assert_eq!((&client).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!((&client).write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
        client.set_read_deadline(None);
        assert_eq!((&client).read(&mut [0; 1]).unwrap(), 1);
        assert_eq!((&client).write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
        client.set_write_deadline(Some(Instant::now() + Duration::from_secs(3600)));
        assert_eq!((&client).write(b"x").unwrap(), 1);
        assert_eq!((&client).read(&mut [0; 8]).unwrap(), 1);
        // Cleared again, a read waits, for as long as it takes.
        client.set_read_deadline(Some(Instant::now()));
        client.set_read_deadline(None);
        let reader = waiting(move || (&client).read(&mut [0; 8]).unwrap());
        (&server).write_all(b"x").unwrap();
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn a_deadline_or_a_close_unblocks_a_reader() {
    everywhere(|| {
        for close in [false, true] {
            let (client, _server) = pair();
            let client = Arc::new(client);
            let reader = {
                let client = Arc::clone(&client);
                waiting(move || (&*client).read(&mut [0; 8]).unwrap_err().kind())
            };
            if close {
                client.close();
            } else {
                client.set_read_deadline(Some(Instant::now()));
            }
            let expected = if close { ErrorKind::ConnectionAborted } else { ErrorKind::TimedOut };
            assert_eq!(reader.join().unwrap(), expected);
        }
    });
}

#[test]
fn several_accept_from_one_listener() {
    watched(|| {
        runtime(4).run(|| {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
            let address = listener.local_addr().unwrap();
            let servers: Vec<_> = (0..4)
                .map(|_| {
                    let listener = Arc::clone(&listener);
                    heist::go(move || {
                        let mut n = 0;
                        for stream in listener.incoming() {
                            stream.unwrap().write_all(b"x").unwrap();
                            n += 1;
                        }
                        n
                    })
                })
                .collect();
            for _ in 0..100 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.read_exact(&mut [0; 1]).unwrap();
            }
            listener.close();
            let n: usize = servers.into_iter().map(|server| server.join().unwrap()).sum();
            assert_eq!(n, 100);
            let refused = TcpStream::connect(address).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        });
    });
}

#[test]
fn a_reset_connection_is_an_error() {
    everywhere(|| {
        let (client, mut server) = pair();
        client.set_linger(Some(Duration::ZERO)).unwrap();
        let reader = heist::go(move || server.read(&mut [0; 8]).unwrap_err().kind());
        drop(client);
        assert_eq!(reader.join().unwrap(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_runtime_that_ends_unwinds_those_who_wait() {
    watched(|| {
        let drops = Drops::default();
        let (client, server) = pair();
        let waiter = runtime(2);
        let value = drops.value();
        waiter.run(|| {
            let _ = waiting(move || {
                let _value = value;
                let _ = (&client).read(&mut [0; 8]);
            });
        });
        drop(waiter);
        assert_eq!(drops.count(), 1);
        let mut server = server;
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0, "the other end is closed");
    });
}

/// A descriptor is registered with the runtime of the first one who waited. When that
/// ends, the others who wait are not forgotten.
#[test]
fn others_wait_on_when_a_runtime_ends() {
    watched(|| {
        let (client, server) = pair();
        let client = Arc::new(client);
        let first = runtime(2);
        first.run(|| {
            client.set_read_timeout(Some(millis(1))).unwrap();
            assert!((&*client).read(&mut [0; 8]).is_err());
            client.set_read_timeout(None).unwrap();
        });
        let read = |client: &TcpStream| {
            let mut buffer = [0; 1];
            let mut client = client;
            client.read(&mut buffer).map(|n| (n, buffer[0]))
        };
        std::thread::scope(|scope| {
            let second = runtime(2);
            let thread = scope.spawn(|| read(&client));
            let client = Arc::clone(&client);
            let goroutine = second.run(|| waiting(move || read(&client)));
            drop(first);
            let mut got = Vec::new();
            (&server).write_all(b"a").unwrap();
            until(|| thread.is_finished() || goroutine.is_finished());
            (&server).write_all(b"b").unwrap();
            got.push(thread.join().unwrap().unwrap());
            got.push(goroutine.join().unwrap().unwrap());
            got.sort_unstable();
            assert_eq!(got, [(1, b'a'), (1, b'b')]);
        });
    });
}
