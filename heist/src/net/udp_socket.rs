//! [`UdpSocket`].

use super::forward::{forward, messages, waiting};
use super::resolve::{resolve, resolve_first};
use super::socket::Socket;
use super::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use crate::sched::netpoll::Side;
use rustix::net::{self as sys, RecvFlags, SendFlags};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::Location;

/// A UDP socket: [`std::net::UdpSocket`], whose calls park the goroutine.
///
/// ```
/// use heist::net::UdpSocket;
///
/// heist::run(|| {
///     let server = UdpSocket::bind("127.0.0.1:0")?;
///     let client = UdpSocket::bind("127.0.0.1:0")?;
///     client.connect(server.local_addr()?)?;
///     let echo = heist::go(move || {
///         let mut buffer = [0; 100];
///         let (n, from) = server.recv_from(&mut buffer)?;
///         server.send_to(&buffer[..n], from)
///     });
///     client.send(b"hello")?;
///     let mut buffer = [0; 100];
///     assert_eq!(client.recv(&mut buffer)?, 5);
///     assert_eq!(&buffer[..5], b"hello");
///     assert_eq!(echo.join().unwrap()?, 5);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket {
    pub(super) socket: Socket<std::net::UdpSocket>,
}

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

impl UdpSocket {
    /// A socket with the first of the addresses that can be had. Port 0 is one that
    /// is free.
    ///
    /// # Errors
    ///
    /// That of the last address, or of looking it up.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        let socket = std::net::UdpSocket::bind(&resolve(addr)?[..])?;
        Ok(UdpSocket { socket: Socket::new(socket) })
    }

    /// Receives a message, and says from whom. What does not fit is lost.
    ///
    /// # Errors
    ///
    /// Those of recvfrom(2).
    #[track_caller]
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from_with(buf, RecvFlags::empty(), Location::caller())
    }

    /// As [`recv_from`](Self::recv_from), and leaves the message there.
    ///
    /// # Errors
    ///
    /// Those of recvfrom(2).
    #[track_caller]
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from_with(buf, RecvFlags::PEEK, Location::caller())
    }

    #[inline(always)] // as `park::yield_now`
    fn recv_from_with(
        &self,
        buf: &mut [u8],
        flags: RecvFlags,
        site: &'static Location<'static>,
    ) -> io::Result<(usize, SocketAddr)> {
        let attempt = |fd: BorrowedFd<'_>| {
            let (_, n, from) = sys::recvfrom(fd, &mut *buf, flags | RecvFlags::DONTWAIT)?;
            let from = from.ok_or(io::ErrorKind::InvalidInput)?;
            Ok((n, SocketAddr::try_from(from)?))
        };
        // From nobody, which is no address: std's error, too.
        self.socket.receive(site, attempt, || Err(io::ErrorKind::InvalidInput.into()))
    }

    /// Sends a message to the first of the addresses.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is none; those of sendto(2), and of looking it up.
    #[track_caller]
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let site = Location::caller();
        let Some(addr) = resolve_first(addr)? else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no addresses to send data to",
            ));
        };
        self.socket.run(Side::Write, site, |fd| Ok(sys::sendto(fd, buf, SEND, &addr)?))
    }

    /// Exchanges messages only with this address from now on.
    ///
    /// # Errors
    ///
    /// That of the last address, or of looking it up.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        self.socket.inner().connect(&resolve(addr)?[..])
    }

    messages!();

    /// Another handle of the same socket.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<UdpSocket> {
        Ok(UdpSocket { socket: self.socket.again(self.socket.inner().try_clone()?) })
    }

    forward! {
        /// The address that it is connected to.
        ///
        /// # Errors
        ///
        /// If it is not.
        fn peer_addr(&self) -> io::Result<SocketAddr>;

        /// Its own address.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn local_addr(&self) -> io::Result<SocketAddr>;

        /// Takes the error that the socket has, if any.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn take_error(&self) -> io::Result<Option<io::Error>>;

        /// Whether it may send to broadcast addresses.
        ///
        /// # Errors
        ///
        /// If the kernel refuses; likewise for all options below.
        fn set_broadcast(&self, broadcast: bool) -> io::Result<()>;

        /// Whether it may send to broadcast addresses.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell; likewise for all options below.
        fn broadcast(&self) -> io::Result<bool>;

        /// The time to live of its packets: how many routers they may pass.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn set_ttl(&self, ttl: u32) -> io::Result<()>;

        /// The time to live of its packets.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn ttl(&self) -> io::Result<u32>;

        /// Whether multicast packets come back to this machine.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn set_multicast_loop_v4(&self, multicast_loop_v4: bool) -> io::Result<()>;

        /// Whether multicast packets come back to this machine.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn multicast_loop_v4(&self) -> io::Result<bool>;

        /// The time to live of its multicast packets.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn set_multicast_ttl_v4(&self, multicast_ttl_v4: u32) -> io::Result<()>;

        /// The time to live of its multicast packets.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn multicast_ttl_v4(&self) -> io::Result<u32>;

        /// Whether multicast packets come back to this machine, for IPv6.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn set_multicast_loop_v6(&self, multicast_loop_v6: bool) -> io::Result<()>;

        /// Whether multicast packets come back to this machine, for IPv6.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn multicast_loop_v6(&self) -> io::Result<bool>;

        /// Joins a multicast group on the interface with an address.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn join_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()>;

        /// Joins a multicast group on the interface with a number.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()>;

        /// Leaves a multicast group.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn leave_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()>;

        /// Leaves a multicast group.
        ///
        /// # Errors
        ///
        /// If the kernel refuses.
        fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()>;
    }

    waiting!();
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}
