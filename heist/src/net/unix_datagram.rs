//! [`UnixDatagram`].

use super::forward::{forward, messages, waiting};
use super::socket::{Pauses, Socket};
use super::{Shutdown, UnixAddr};
use crate::sched::netpoll::Side;
use rustix::net::{self as sys, RecvFlags, SendFlags, SocketAddrUnix};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net as std_unix;
use std::panic::Location;
use std::path::Path;

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A Unix datagram socket: [`std::os::unix::net::UnixDatagram`], whose calls park the
/// goroutine.
///
/// ```
/// use heist::net::UnixDatagram;
///
/// heist::run(|| {
///     let (near, far) = UnixDatagram::pair()?;
///     let sender = heist::go(move || far.send(b"hello"));
///     let mut buffer = [0; 100];
///     assert_eq!(near.recv(&mut buffer)?, 5);
///     sender.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram {
    pub(super) socket: Socket<std_unix::UnixDatagram>,
}

impl UnixDatagram {
    fn of(socket: std_unix::UnixDatagram) -> UnixDatagram {
        UnixDatagram { socket: Socket::new(socket) }
    }

    /// A socket with a name in the file system, which must be free.
    ///
    /// # Errors
    ///
    /// Those of bind(2).
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        std_unix::UnixDatagram::bind(path).map(Self::of)
    }

    /// A socket with an address.
    ///
    /// # Errors
    ///
    /// Those of bind(2).
    pub fn bind_addr(socket_addr: &UnixAddr) -> io::Result<UnixDatagram> {
        std_unix::UnixDatagram::bind_addr(socket_addr).map(Self::of)
    }

    /// A socket without a name.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn unbound() -> io::Result<UnixDatagram> {
        std_unix::UnixDatagram::unbound().map(Self::of)
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, two) = std_unix::UnixDatagram::pair()?;
        Ok((Self::of(one), Self::of(two)))
    }

    /// Exchanges messages only with the socket of this name from now on.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.socket.inner().connect(path)
    }

    /// Exchanges messages only with this address from now on.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect_addr(&self, socket_addr: &UnixAddr) -> io::Result<()> {
        self.socket.inner().connect_addr(socket_addr)
    }

    /// Another handle of the same socket.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<UnixDatagram> {
        Ok(UnixDatagram { socket: self.socket.again(self.socket.inner().try_clone()?) })
    }

    /// Receives a message, and says from whom. What does not fit is lost.
    ///
    /// # Errors
    ///
    /// Those of recvfrom(2).
    #[track_caller]
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, UnixAddr)> {
        self.recv_from_with(buf, RecvFlags::DONTWAIT, Location::caller())
    }

    /// As [`recv_from`](Self::recv_from), and leaves the message there.
    ///
    /// # Errors
    ///
    /// Those of recvfrom(2).
    #[track_caller]
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, UnixAddr)> {
        self.recv_from_with(buf, RecvFlags::DONTWAIT | RecvFlags::PEEK, Location::caller())
    }

    #[inline(always)] // as `park::yield_now`
    fn recv_from_with(
        &self,
        buf: &mut [u8],
        flags: RecvFlags,
        site: &'static Location<'static>,
    ) -> io::Result<(usize, UnixAddr)> {
        let attempt = |fd: BorrowedFd<'_>| {
            let (_, n, from) = sys::recvfrom(fd, &mut *buf, flags)?;
            let from = from.map(SocketAddrUnix::try_from).transpose()?;
            Ok((n, to_std(from.as_ref())?))
        };
        self.socket.receive(site, attempt, || Ok((0, to_std(None)?)))
    }

    /// Sends a message to the socket of this name.
    ///
    /// # Errors
    ///
    /// Those of sendto(2).
    #[track_caller]
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        // std's own check and its error texts.
        let addr = UnixAddr::from_pathname(path)?;
        self.send_to_addr(buf, &addr)
    }

    /// Sends a message to an address.
    ///
    /// # Errors
    ///
    /// Those of sendto(2).
    #[track_caller]
    pub fn send_to_addr(&self, buf: &[u8], socket_addr: &UnixAddr) -> io::Result<usize> {
        let addr = from_std(socket_addr)?;
        let send = |fd: BorrowedFd<'_>| Ok(sys::sendto(fd, buf, SEND, &addr)?);
        // If the receiver's queue is full, a socket that is not connected to it is never
        // told when there is room again: it asks again, after ever longer waits.
        self.socket.run_asking(Side::Write, Pauses::UNTOLD, Location::caller(), send)
    }

    messages!();

    forward! {
        /// Its own address.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn local_addr(&self) -> io::Result<UnixAddr>;

        /// The address that it is connected to.
        ///
        /// # Errors
        ///
        /// If it is not.
        fn peer_addr(&self) -> io::Result<UnixAddr>;

        /// Takes the error that the socket has, if any.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn take_error(&self) -> io::Result<Option<io::Error>>;

        /// Ends receiving, sending or both, for all handles. Calls that wait for a
        /// message, on any of them, return an empty one.
        ///
        /// # Errors
        ///
        /// If it is not connected.
        fn shutdown(&self, how: Shutdown) -> io::Result<()>;
    }

    waiting!();
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

/// The kernel's form of an address.
fn from_std(addr: &UnixAddr) -> io::Result<SocketAddrUnix> {
    Ok(match (addr.as_pathname(), addr.as_abstract_name()) {
        (Some(path), _) => SocketAddrUnix::new(path)?,
        (None, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
        (None, None) => SocketAddrUnix::new_unnamed(),
    })
}

/// std's form of an address; a sender without a name has an empty one.
fn to_std(addr: Option<&SocketAddrUnix>) -> io::Result<UnixAddr> {
    if let Some(path) = addr.and_then(|addr| addr.path()) {
        return UnixAddr::from_pathname(std::ffi::OsStr::from_bytes(path.to_bytes()));
    }
    if let Some(name) = addr.and_then(|addr| addr.abstract_name()) {
        return UnixAddr::from_abstract_name(name);
    }
    // std has no other way to make one that is empty.
    UnixAddr::from_pathname("")
}
