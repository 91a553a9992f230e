//! [`TcpStream`].

use super::forward::{ending, forward, waiting};
use super::resolve::{each_addr, resolve};
use super::socket::{Socket, Stream};
use super::{Shutdown, SocketAddr, ToSocketAddrs};
use crate::io::whole;
use crate::sched::netpoll::{Patience, Side};
use rustix::io::Errno;
use rustix::net::{self as sys, RecvFlags, SendFlags};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::panic::Location;
use std::time::Duration;

/// The kernel takes no more slices in one call.
const MOST_SLICES: usize = 1024;

/// A TCP connection: [`std::net::TcpStream`], whose calls park the goroutine.
///
/// ```
/// use heist::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?)?;
/// let (mut server, peer) = listener.accept()?;
/// assert_eq!(peer, client.local_addr()?);
/// client.write_all(b"ping")?;
/// let mut ping = [0; 4];
/// server.read_exact(&mut ping)?;
/// assert_eq!(&ping, b"ping");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream {
    pub(super) socket: Socket<std::net::TcpStream>,
}

impl TcpStream {
    /// Connects to the first of the addresses that answers. Names are looked up
    /// without holding up other goroutines.
    ///
    /// # Errors
    ///
    /// That of the last address, or of looking it up.
    #[track_caller]
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        let site = Location::caller();
        each_addr(&resolve(addr)?, |addr| Self::connect_one(addr, Patience::Forever, site))
    }

    /// Connects to an address, for at most so long.
    ///
    /// # Errors
    ///
    /// `TimedOut` if it takes longer, `InvalidInput` if the time is zero, and whatever
    /// the connection fails with.
    #[track_caller]
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a 0 duration timeout",
            ));
        }
        let nanos = crate::prim::nanos(timeout);
        Self::connect_one(addr, Patience::For(nanos), Location::caller()).map_err(|error| {
            match error.kind() {
                io::ErrorKind::WouldBlock => {
                    io::Error::new(io::ErrorKind::TimedOut, "connection timed out")
                }
                _ => error,
            }
        })
    }

    fn connect_one(
        addr: &SocketAddr,
        patience: Patience,
        site: &'static Location<'static>,
    ) -> io::Result<TcpStream> {
        let family =
            if addr.is_ipv4() { sys::AddressFamily::INET } else { sys::AddressFamily::INET6 };
        let flags = sys::SocketFlags::CLOEXEC | sys::SocketFlags::NONBLOCK;
        let fd = sys::socket_with(family, sys::SocketType::STREAM, flags, None)?;
        let stream = TcpStream { socket: Socket::new(fd.into()) };
        // Asking again says how it ended.
        stream.socket.run_for(Side::Write, patience, site, |fd| match sys::connect(fd, addr) {
            Ok(()) | Err(Errno::ISCONN) => Ok(()),
            Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            // No port is free, which waiting for this socket does not change.
            Err(Errno::AGAIN) => Err(Errno::ADDRNOTAVAIL.into()),
            Err(error) => Err(error.into()),
        })?;
        stream.socket.inner().set_nonblocking(false)?;
        Ok(stream)
    }

    /// Another handle of the same connection.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        Ok(TcpStream { socket: self.socket.again(self.socket.inner().try_clone()?) })
    }

    /// Reads what there is and leaves it there for the next read.
    ///
    /// # Errors
    ///
    /// As [`read`](Read::read).
    #[track_caller]
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.socket.run(Side::Read, Location::caller(), |fd| Ok(sys::recv(fd, &mut *buf, flags)?.1))
    }

    forward! {
        /// The address of the other end.
        ///
        /// # Errors
        ///
        /// If it is not connected.
        fn peer_addr(&self) -> io::Result<SocketAddr>;

        /// The address of this end.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn local_addr(&self) -> io::Result<SocketAddr>;

        /// Ends reading, writing or both, for all handles. Calls that wait, on any of
        /// them, go on: reads find the end of the stream, writes fail.
        ///
        /// # Errors
        ///
        /// If it is not connected.
        fn shutdown(&self, how: Shutdown) -> io::Result<()>;

        /// Whether small writes are sent at once, without waiting for more.
        ///
        /// # Errors
        ///
        /// If the kernel refuses; likewise for the options below.
        fn set_nodelay(&self, nodelay: bool) -> io::Result<()>;

        /// Whether small writes are sent at once.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell; likewise for the options below.
        fn nodelay(&self) -> io::Result<bool>;

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

        /// Takes the error that the socket has, if any.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn take_error(&self) -> io::Result<Option<io::Error>>;
    }

    /// Whether a close waits for data that was not sent yet, and for how long; with
    /// zero, it is thrown away and the other end sees a reset.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        Ok(sys::sockopt::set_socket_linger(self.socket.fd(), linger)?)
    }

    /// Whether a close waits for data that was not sent yet.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sys::sockopt::socket_linger(self.socket.fd())?)
    }

    /// Whether received data is acknowledged at once. The kernel may change it later.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        Ok(sys::sockopt::set_tcp_quickack(self.socket.fd(), quickack)?)
    }

    /// Whether received data is acknowledged at once.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(sys::sockopt::tcp_quickack(self.socket.fd())?)
    }

    waiting!();

    ending!();
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl Read for &TcpStream {
    #[inline]
    #[track_caller]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.transfer(Side::Read, buf.len(), Location::caller(), |fd| {
            Ok(sys::recv(fd, &mut *buf, RecvFlags::DONTWAIT)?.1)
        })
    }

    #[inline]
    #[track_caller]
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = bufs.len().min(MOST_SLICES);
        let bufs = &mut bufs[..most];
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.socket.transfer(Side::Read, len, Location::caller(), |fd| {
            let mut control = sys::RecvAncillaryBuffer::default();
            Ok(sys::recvmsg(fd, bufs, &mut control, RecvFlags::DONTWAIT)?.bytes)
        })
    }
}

impl Write for &TcpStream {
    #[inline]
    #[track_caller]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.socket.write(Stream::Tcp, buf.len(), Location::caller(), |fd, done| {
            Ok(sys::send(fd, &buf[done..], flags)?)
        })
    }

    #[inline]
    #[track_caller]
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(MOST_SLICES)];
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.socket.write(Stream::Tcp, len, Location::caller(), |fd, done| {
            let mut control = sys::SendAncillaryBuffer::default();
            Ok(match done {
                0 => sys::sendmsg(fd, bufs, &mut control, flags)?,
                _ => sys::sendmsg(fd, &whole::rest(bufs, done), &mut control, flags)?,
            })
        })
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

super::forward::by_value!(TcpStream);
