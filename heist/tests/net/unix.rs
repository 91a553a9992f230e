//! Unix sockets.

use super::*;
use heist::net::unix::SocketAddr as UnixAddr;
use std::os::linux::net::SocketAddrExt;
use std::path::PathBuf;

/// A name in the file system that goes with its owner.
struct Name(PathBuf);

impl Name {
    fn new() -> Name {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Name(std::env::temp_dir().join(format!("heist-net-{}-{n}", std::process::id())))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn streams_echo_and_end() {
    everywhere(|| {
        let name = Name::new();
        let listener = UnixListener::bind(&name.0).unwrap();
        assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*name.0));
        let server = heist::go(move || {
            let (mut stream, from) = listener.accept().unwrap();
            assert!(from.is_unnamed());
            let mut copy = stream.try_clone().unwrap();
            std::io::copy(&mut copy, &mut stream).unwrap()
        });
        let mut stream = UnixStream::connect(&name.0).unwrap();
        assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(&*name.0));
        for i in 0..100u32 {
            stream.write_all(&i.to_le_bytes()).unwrap();
            let mut back = [0; 4];
            assert!(stream.peek(&mut back).unwrap() >= 1);
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, i.to_le_bytes());
        }
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(server.join().unwrap(), 400);
    });
}

#[test]
fn names_that_are_not_in_the_file_system() {
    everywhere(|| {
        let name = format!("heist-{}-{:?}", std::process::id(), Instant::now());
        let address = UnixAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let stream = UnixStream::connect_addr(&address).unwrap();
        let accepted = (&listener).into_iter().next().unwrap().unwrap();
        (&accepted).write_all(b"x").unwrap();
        assert_eq!((&stream).read(&mut [0; 2]).unwrap(), 1);
        listener.close();
        assert!(listener.incoming().next().is_none());
    });
}

#[test]
fn a_full_pipe_waits_and_slices_go_through() {
    everywhere(|| {
        let (near, mut far) = UnixStream::pair().unwrap();
        let writer = heist::go(move || {
            let mut sent = 0;
            let data = vec![7; 10_000];
            while sent < 5_000_000 {
                sent +=
                    (&near).write_vectored(&[IoSlice::new(&data), IoSlice::new(&data)]).unwrap();
            }
            sent
        });
        let (mut got, mut one, mut two) = (0, [0; 3], vec![0; 100_000]);
        loop {
            let slices = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            match far.read_vectored(slices).unwrap() {
                0 => break,
                n => got += n,
            }
        }
        assert_eq!(writer.join().unwrap(), got);
        assert!(one == [7; 3] && two[0] == 7);
    });
}

/// Of which the kernel tells nobody.
#[test]
fn a_writer_that_waits_hears_of_a_shutdown() {
    everywhere(|| {
        let waits = |stream: UnixStream| {
            let stream = Arc::new(stream);
            let writer = Arc::clone(&stream);
            let write = move || (&*writer).write_all(&vec![0; 1 << 20]).map_err(|e| e.kind());
            (stream, waiting(write))
        };
        let (near, far) = UnixStream::pair().unwrap();
        let (near, writer) = waits(near);
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(writer.join().unwrap(), Err(ErrorKind::BrokenPipe), "on the same handle");
        drop(far);

        let (near, far) = UnixStream::pair().unwrap();
        let clone = near.try_clone().unwrap();
        let (_near, writer) = waits(near);
        clone.shutdown(Shutdown::Write).unwrap();
        assert_eq!(writer.join().unwrap(), Err(ErrorKind::BrokenPipe), "on a clone");
        drop(far);

        let (near, far) = UnixStream::pair().unwrap();
        let (_near, writer) = waits(near);
        far.shutdown(Shutdown::Read).unwrap();
        assert_eq!(writer.join().unwrap(), Err(ErrorKind::BrokenPipe), "at the other end");

        // It waits as long as it may, in spite of its asking.
        let (near, _far) = UnixStream::pair().unwrap();
        near.set_write_timeout(Some(millis(40))).unwrap();
        assert!((&near).write(&vec![0; 1 << 20]).unwrap() < 1 << 20);
        let begin = Instant::now();
        assert_eq!((&near).write(&[0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(begin.elapsed() >= millis(40));
    });
}

#[test]
fn timeouts_nonblocking_and_formats_are_those_of_std() {
    everywhere(|| {
        let (near, far) = UnixStream::pair().unwrap();
        assert!(near.set_read_timeout(Some(Duration::ZERO)).is_err());
        near.set_read_timeout(Some(millis(20))).unwrap();
        assert_eq!((&near).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
        near.set_read_timeout(None).unwrap();
        far.set_nonblocking(true).unwrap();
        assert_eq!((&far).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(near.take_error().unwrap().is_none());
        let ours = format!("{near:?}");
        assert_eq!(ours, format!("{:?}", std::os::unix::net::UnixStream::from(near)));
        drop(far);
        let name = Name::new();
        let listener = UnixListener::bind(&name.0).unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let clone = listener.try_clone().unwrap();
        assert_eq!(clone.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        listener.set_deadline(Some(Instant::now()));
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
        let ours = format!("{listener:?}");
        assert_eq!(ours, format!("{:?}", std::os::unix::net::UnixListener::from(listener)));
    });
}

#[test]
fn datagrams_come_with_their_senders() {
    everywhere(|| {
        let (near, far) = UnixDatagram::pair().unwrap();
        let sender = heist::go(move || far.send(b"hello").unwrap());
        let mut buffer = [0; 10];
        assert_eq!(near.peek(&mut buffer).unwrap(), 5);
        assert_eq!(near.recv(&mut buffer).unwrap(), 5);
        assert_eq!(sender.join().unwrap(), 5);

        let (name, other) = (Name::new(), Name::new());
        let server = UnixDatagram::bind(&name.0).unwrap();
        let client = UnixDatagram::bind_addr(&UnixAddr::from_pathname(&other.0).unwrap()).unwrap();
        client.send_to(b"named", &name.0).unwrap();
        let (n, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((n, from.as_pathname()), (5, Some(&*other.0)));
        let unnamed = UnixDatagram::unbound().unwrap();
        unnamed.send_to_addr(b"x", &UnixAddr::from_pathname(&name.0).unwrap()).unwrap();
        let (n, from) = server.recv_from(&mut buffer).unwrap();
        assert!(n == 1 && from.is_unnamed());
        let abstract_name = format!("heist-dgram-{}-{:?}", std::process::id(), Instant::now());
        let address = UnixAddr::from_abstract_name(&abstract_name).unwrap();
        let hidden = UnixDatagram::bind_addr(&address).unwrap();
        hidden.connect(&name.0).unwrap();
        hidden.send(b"yz").unwrap();
        let (n, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((n, from.as_abstract_name()), (2, Some(abstract_name.as_bytes())));
        server.send_to_addr(b"back", &from).unwrap();
        assert_eq!(hidden.recv(&mut buffer).unwrap(), 4);
        unnamed.connect_addr(&server.local_addr().unwrap()).unwrap();
        assert_eq!(unnamed.peer_addr().unwrap().as_pathname(), Some(&*name.0));
        server.set_read_timeout(Some(millis(20))).unwrap();
        assert_eq!(server.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        unnamed.shutdown(Shutdown::Both).unwrap();
        assert_eq!(unnamed.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let ours = format!("{server:?}");
        assert_eq!(ours, format!("{:?}", std::os::unix::net::UnixDatagram::from(server)));
    });
}

#[test]
fn who_waits_for_a_message_hears_of_a_shutdown() {
    everywhere(|| {
        let (near, far) = UnixDatagram::pair().unwrap();
        let clone = near.try_clone().unwrap();
        let receiver = waiting(move || clone.recv(&mut [0]).unwrap());
        near.shutdown(Shutdown::Read).unwrap();
        assert_eq!(receiver.join().unwrap(), 0);
        // From now on at once.
        assert_eq!(near.recv(&mut [0]).unwrap(), 0);
        assert_eq!(near.peek(&mut [0]).unwrap(), 0);
        let (n, from) = near.recv_from(&mut [0]).unwrap();
        assert!(n == 0 && from.is_unnamed());
        near.set_nonblocking(true).unwrap();
        assert_eq!(near.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        near.set_nonblocking(false).unwrap();
        assert_eq!(far.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);

        // What has come before is received first.
        let (near, far) = UnixDatagram::pair().unwrap();
        far.send(b"first").unwrap();
        near.shutdown(Shutdown::Both).unwrap();
        assert_eq!(near.recv(&mut [0; 10]).unwrap(), 5);
        assert_eq!(near.recv(&mut [0; 10]).unwrap(), 0);
    });
}

/// A datagram socket whose receiver does not keep up makes its sender wait.
#[test]
fn a_slow_receiver_makes_its_sender_wait() {
    everywhere(|| {
        let (near, far) = UnixDatagram::pair().unwrap();
        let sender = heist::go(move || (0..2000u32).for_each(|i| drop(far.send(&i.to_le_bytes()))));
        for i in 0..2000u32 {
            let mut buffer = [0; 4];
            near.recv(&mut buffer).unwrap();
            assert_eq!(buffer, i.to_le_bytes());
        }
        sender.join().unwrap();
    });
}

/// Nobody tells a sender that is not connected when there is room again.
#[test]
fn a_slow_receiver_makes_strangers_wait() {
    everywhere(|| {
        let name = Name::new();
        let path = name.0.clone();
        let receiver = UnixDatagram::bind(&path).unwrap();
        let first = UnixDatagram::unbound().unwrap();
        first.set_nonblocking(true).unwrap();
        let mut queued = 0;
        while first.send_to(b"x", &path).is_ok() {
            queued += 1;
        }
        let second = UnixDatagram::unbound().unwrap();
        second.set_write_timeout(Some(millis(5))).unwrap();
        let refused = second.send_to(b"y", &path).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
        second.set_write_timeout(None).unwrap();
        let sent = heist::go({
            let path = path.clone();
            move || second.send_to(b"z", &path).unwrap()
        });
        heist::thread::sleep(millis(5));
        for _ in 0..queued {
            receiver.recv(&mut [0]).unwrap();
        }
        let mut last = [0];
        assert_eq!(receiver.recv(&mut last).unwrap(), 1);
        assert_eq!((sent.join().unwrap(), last), (1, *b"z"));
    });
}

/// The path that std has for them names the same types.
#[test]
fn the_paths_of_std_are_there() {
    use heist::os::unix::net as std_path;

    everywhere(|| {
        let name = Name::new();
        let listener: UnixListener = std_path::UnixListener::bind(&name.0).unwrap();
        let client = heist::go({
            let name = name.0.clone();
            move || std_path::UnixStream::connect(name)?.write_all(b"hello")
        });
        let mut incoming: std_path::Incoming<'_> = listener.incoming();
        let mut stream: UnixStream = incoming.next().unwrap().unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");
        client.join().unwrap().unwrap();

        let address: std_path::SocketAddr = UnixDatagram::unbound().unwrap().local_addr().unwrap();
        assert!(address.is_unnamed());
    });
}
