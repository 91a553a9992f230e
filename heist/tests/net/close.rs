//! A close, and what it means for the other handles of the socket.

use super::*;
use heist::net::unix::SocketAddr as UnixAddr;
use std::os::linux::net::SocketAddrExt;

/// A listener is closed as a whole: nobody accepts any more, on whichever handle.
#[test]
fn a_closed_listener_ends_the_loops_of_its_clones() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clones = [(); 2].map(|()| listener.try_clone().unwrap());
        let [loops, accepts] = clones;
        let loops = waiting(move || (loops.incoming().take(100).count(), loops));
        let accepts = waiting(move || accepts.accept().unwrap_err().kind());
        listener.close();
        let (seen, clone) = loops.join().unwrap();
        assert_eq!(seen, 0);
        assert_eq!(accepts.join().unwrap(), ErrorKind::ConnectionAborted);
        assert_eq!(clone.accept().unwrap_err().kind(), ErrorKind::ConnectionAborted);
        // Also for one whose time is over.
        clone.set_deadline(Some(Instant::now()));
        assert_eq!(clone.accept().unwrap_err().kind(), ErrorKind::ConnectionAborted);
        assert!(clone.try_clone().unwrap().into_incoming().next().is_none());
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_closed_unix_listener_ends_the_loops_of_its_clones() {
    everywhere(|| {
        let name = format!("heist-close-{}-{:?}", std::process::id(), Instant::now());
        let address = UnixAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let clones = [(); 2].map(|()| listener.try_clone().unwrap());
        let [loops, accepts] = clones;
        let loops = waiting(move || (loops.incoming().take(100).count(), loops));
        let accepts = waiting(move || accepts.accept().unwrap_err().kind());
        listener.close();
        let (seen, clone) = loops.join().unwrap();
        assert_eq!(seen, 0);
        assert_eq!(accepts.join().unwrap(), ErrorKind::ConnectionAborted);
        assert_eq!(clone.accept().unwrap_err().kind(), ErrorKind::ConnectionAborted);
        let refused = UnixStream::connect_addr(&address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

/// There is no connection to end: the other handles go on.
#[test]
fn a_closed_datagram_socket_leaves_its_clones_alone() {
    everywhere(|| {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(socket.local_addr().unwrap()).unwrap();
        socket.connect(far.local_addr().unwrap()).unwrap();
        let clone = socket.try_clone().unwrap();
        let ends = waiting({
            let socket = Arc::clone(&socket);
            move || socket.recv(&mut [0; 8]).unwrap_err().kind()
        });
        let goes_on = waiting(move || (clone.recv(&mut [0; 8]).unwrap(), clone));
        socket.close();
        assert_eq!(ends.join().unwrap(), ErrorKind::ConnectionAborted);
        assert_eq!(socket.send(b"x").unwrap_err().kind(), ErrorKind::ConnectionAborted);
        far.send(b"there").unwrap();
        let (n, clone) = goes_on.join().unwrap();
        assert_eq!(n, 5);
        clone.send(b"and back").unwrap();
        assert_eq!(far.recv(&mut [0; 10]).unwrap(), 8);

        let (near, far) = UnixDatagram::pair().unwrap();
        let clone = near.try_clone().unwrap();
        near.close();
        assert_eq!(near.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
        far.send(b"there").unwrap();
        assert_eq!(clone.recv(&mut [0; 8]).unwrap(), 5);
        clone.send(b"and back").unwrap();
        assert_eq!(far.recv(&mut [0; 10]).unwrap(), 8);
    });
}

/// A connection ends, for all that have a handle of it: for the other ones as if it had
/// been shut down.
#[test]
fn a_closed_stream_has_ended_for_its_clones() {
    everywhere(|| {
        let (near, mut far) = pair();
        let mut clone = near.try_clone().unwrap();
        let reads = waiting(move || (clone.read(&mut [0; 8]).unwrap(), clone));
        near.close();
        assert_eq!((&near).read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
        let (n, mut clone) = reads.join().unwrap();
        assert_eq!(n, 0);
        assert_eq!(clone.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0, "the other end is told");

        let (near, mut far) = UnixStream::pair().unwrap();
        let mut clone = near.try_clone().unwrap();
        let reads = waiting(move || (clone.read(&mut [0; 8]).unwrap(), clone));
        near.close();
        let (n, mut clone) = reads.join().unwrap();
        assert_eq!(n, 0);
        assert_eq!(clone.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
    });
}
