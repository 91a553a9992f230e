//! UDP.

use super::*;
use std::os::fd::AsRawFd;

/// std has no shutdown for it, but others have the descriptor.
#[test]
fn who_waits_for_a_message_hears_of_a_shutdown() {
    everywhere(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        let clone = socket.try_clone().unwrap();
        let receiver = waiting(move || clone.recv(&mut [0]).unwrap());
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD) }, 0);
        assert_eq!(receiver.join().unwrap(), 0);
        assert_eq!(socket.recv(&mut [0]).unwrap(), 0);
        let ours = socket.recv_from(&mut [0]).unwrap_err().kind();
        let theirs = std::net::UdpSocket::from(socket).recv_from(&mut [0]).unwrap_err().kind();
        assert_eq!(ours, theirs);
    });
}

fn pair() -> (UdpSocket, UdpSocket) {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets[0].connect(sockets[1].local_addr().unwrap()).unwrap();
    sockets[1].connect(sockets[0].local_addr().unwrap()).unwrap();
    let [one, two] = sockets;
    (one, two)
}

#[test]
fn messages_come_with_their_senders() {
    everywhere(|| {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let echo = heist::go(move || {
            let mut buffer = [0; 100];
            for _ in 0..100 {
                let (n, from) = server.recv_from(&mut buffer).unwrap();
                assert_eq!(server.send_to(&buffer[..n], from).unwrap(), n);
            }
        });
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for i in 0..100u32 {
            client.send_to(&i.to_le_bytes(), address).unwrap();
            let mut buffer = [0; 10];
            assert_eq!(client.peek_from(&mut buffer).unwrap(), (4, address));
            assert_eq!(client.recv_from(&mut buffer).unwrap(), (4, address));
            assert_eq!(buffer[..4], i.to_le_bytes());
        }
        echo.join().unwrap();
    });
}

#[test]
fn connected_sockets_hear_only_each_other() {
    everywhere(|| {
        let (one, two) = pair();
        assert_eq!(one.peer_addr().unwrap(), two.local_addr().unwrap());
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"from a stranger", one.local_addr().unwrap()).unwrap();
        two.send(b"hello").unwrap();
        let mut buffer = [0; 3];
        assert_eq!(one.peek(&mut buffer).unwrap(), 3);
        assert_eq!(one.recv(&mut buffer).unwrap(), 3, "the rest is lost");
        one.set_nonblocking(true).unwrap();
        assert_eq!(one.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        let nobody = one.send_to(b"x", &[][..] as &[SocketAddr]).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn timeouts_deadlines_and_a_close_end_a_wait() {
    everywhere(|| {
        let (one, _two) = pair();
        assert!(one.set_read_timeout(Some(Duration::ZERO)).is_err());
        one.set_read_timeout(Some(millis(20))).unwrap();
        let (start, mut buffer) = (Instant::now(), [0; 1]);
        assert_eq!(one.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= millis(40));
        one.set_deadline(Some(Instant::now()));
        assert_eq!(one.recv(&mut buffer).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(one.send(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
        one.set_deadline(None);
        one.set_read_timeout(None).unwrap();
        let one = Arc::new(one);
        let reader = {
            let one = Arc::clone(&one);
            waiting(move || one.recv(&mut [0; 1]).unwrap_err().kind())
        };
        one.close();
        assert_eq!(reader.join().unwrap(), ErrorKind::ConnectionAborted);
    });
}

#[test]
fn options_and_formats_are_those_of_std() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_broadcast(true).unwrap();
    assert!(socket.broadcast().unwrap());
    socket.set_ttl(42).unwrap();
    assert_eq!(socket.ttl().unwrap(), 42);
    socket.set_multicast_loop_v4(false).unwrap();
    assert!(!socket.multicast_loop_v4().unwrap());
    socket.set_multicast_ttl_v4(7).unwrap();
    assert_eq!(socket.multicast_ttl_v4().unwrap(), 7);
    assert!(socket.join_multicast_v4(&Ipv4Addr::LOCALHOST, &Ipv4Addr::UNSPECIFIED).is_err());
    assert!(socket.leave_multicast_v4(&Ipv4Addr::LOCALHOST, &Ipv4Addr::UNSPECIFIED).is_err());
    assert!(socket.join_multicast_v6(&Ipv6Addr::LOCALHOST, 0).is_err());
    assert!(socket.leave_multicast_v6(&Ipv6Addr::LOCALHOST, 0).is_err());
    assert!(socket.take_error().unwrap().is_none());
    let clone = socket.try_clone().unwrap();
    assert_eq!(clone.local_addr().unwrap(), socket.local_addr().unwrap());
    let ours = format!("{socket:?}");
    assert_eq!(ours, format!("{:?}", std::net::UdpSocket::from(socket)));
}
