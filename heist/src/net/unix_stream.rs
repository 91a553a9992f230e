//! [`UnixStream`].

use super::forward::{ending, forward, waiting};
use super::resolve::off_the_p;
use super::socket::{Socket, Stream};
use super::{Shutdown, UnixAddr};
use crate::io::whole;
use crate::sched::netpoll::Side;
use rustix::net::{self as sys, RecvFlags, SendFlags};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::unix::net as std_unix;
use std::panic::Location;
use std::path::Path;

/// The kernel takes no more slices in one call.
const MOST_SLICES: usize = 1024;

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A connection to a Unix socket: [`std::os::unix::net::UnixStream`], whose calls park
/// the goroutine.
///
/// ```
/// use heist::net::UnixStream;
/// use std::io::{Read, Write};
///
/// heist::run(|| {
///     let (mut near, mut far) = UnixStream::pair()?;
///     let writer = heist::go(move || far.write_all(b"hello"));
///     let mut text = String::new();
///     near.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     writer.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream {
    pub(super) socket: Socket<std_unix::UnixStream>,
}

impl UnixStream {
    fn of(stream: std_unix::UnixStream) -> UnixStream {
        UnixStream { socket: Socket::new(stream) }
    }

    /// Connects to the socket with a name in the file system.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        // If the listener's queue is full, nothing tells when it no longer is.
        off_the_p(|| std_unix::UnixStream::connect(path)).map(Self::of)
    }

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect_addr(socket_addr: &UnixAddr) -> io::Result<UnixStream> {
        off_the_p(|| std_unix::UnixStream::connect_addr(socket_addr)).map(Self::of)
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (one, two) = std_unix::UnixStream::pair()?;
        Ok((Self::of(one), Self::of(two)))
    }

    /// Another handle of the same connection.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<UnixStream> {
        Ok(UnixStream { socket: self.socket.again(self.socket.inner().try_clone()?) })
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
        /// The address of this end.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn local_addr(&self) -> io::Result<UnixAddr>;

        /// The address of the other end.
        ///
        /// # Errors
        ///
        /// If it is not connected.
        fn peer_addr(&self) -> io::Result<UnixAddr>;

        /// Takes the error that the socket has, if any.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn take_error(&self) -> io::Result<Option<io::Error>>;
    }

    /// Ends reading, writing or both, for all handles. Calls that wait, on any of
    /// them, go on: reads find the end of the stream, writes fail. A write that waits on
    /// another handle, or at the other end, has to ask for it: that takes about as long as
    /// it has waited already, and a tenth of a second at most.
    ///
    /// # Errors
    ///
    /// If it is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.inner().shutdown(how)?;
        if how != Shutdown::Read {
            self.socket.nudge_writers();
        }
        Ok(())
    }

    waiting!();

    ending!();
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl Read for &UnixStream {
    #[inline]
    #[track_caller]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.run(Side::Read, Location::caller(), |fd| {
            Ok(sys::recv(fd, &mut *buf, RecvFlags::DONTWAIT)?.1)
        })
    }

    #[inline]
    #[track_caller]
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let most = bufs.len().min(MOST_SLICES);
        self.socket.run(Side::Read, Location::caller(), |fd| {
            let mut control = sys::RecvAncillaryBuffer::default();
            Ok(sys::recvmsg(fd, &mut bufs[..most], &mut control, RecvFlags::DONTWAIT)?.bytes)
        })
    }
}

impl Write for &UnixStream {
    #[inline]
    #[track_caller]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.write(Stream::Unix, buf.len(), Location::caller(), |fd, done| {
            Ok(sys::send(fd, &buf[done..], SEND)?)
        })
    }

    #[inline]
    #[track_caller]
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(MOST_SLICES)];
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.socket.write(Stream::Unix, len, Location::caller(), |fd, done| {
            let mut control = sys::SendAncillaryBuffer::default();
            Ok(match done {
                0 => sys::sendmsg(fd, bufs, &mut control, SEND)?,
                _ => sys::sendmsg(fd, &whole::rest(bufs, done), &mut control, SEND)?,
            })
        })
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

super::forward::by_value!(UnixStream);
