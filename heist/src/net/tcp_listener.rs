//! [`TcpListener`].

use super::forward::forward;
use super::incoming::Accepting;
use super::resolve::resolve;
use super::socket::Socket;
use super::{SocketAddr, TcpStream, ToSocketAddrs};
use crate::sched::netpoll::Side;
use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::panic::Location;
use std::time::Instant;

/// Accepts TCP connections: [`std::net::TcpListener`], whose calls park the
/// goroutine.
///
/// ```
/// use heist::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// heist::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let _ = heist::go(move || {
///         for stream in listener.incoming() {
///             let mut stream = stream?;
///             let _ = heist::go(move || stream.write_all(b"hello"));
///         }
///         Ok::<(), std::io::Error>(())
///     });
///     let mut text = String::new();
///     TcpStream::connect(address)?.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener {
    pub(super) socket: Socket<std::net::TcpListener>,
}

impl TcpListener {
    /// Listens on the first of the addresses that can be had. Port 0 is one that is
    /// free.
    ///
    /// # Errors
    ///
    /// That of the last address, or of looking it up.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let listener = std::net::TcpListener::bind(&resolve(addr)?[..])?;
        // Underneath: accept(2) cannot be told otherwise that it must not wait.
        listener.set_nonblocking(true)?;
        Ok(TcpListener { socket: Socket::new(listener) })
    }

    /// Accepts a connection. Several goroutines may do so at a time.
    ///
    /// # Errors
    ///
    /// Those of accept(2). Some pass by themselves: see [`incoming`](Self::incoming).
    #[track_caller]
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, addr) =
            self.socket.accept(Location::caller(), std::net::TcpListener::accept)?;
        Ok((TcpStream { socket: Socket::new(stream) }, addr))
    }

    /// The connections, one after the other, until the listener is
    /// [closed](Self::close).
    ///
    /// What passes by itself is no error here: a connection that was given up before
    /// it was accepted is left out, and while the process has no descriptors left, the
    /// iterator pauses, up to a second at a time, and says so once on standard error. (A
    /// close is noticed after that pause.)
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, accepting: Accepting::default() }
    }

    /// As [`incoming`](Self::incoming), and the listener goes with the iterator.
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming { listener: self, accepting: Accepting::default() }
    }

    /// Another handle of the same listener.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        Ok(TcpListener { socket: self.socket.again(self.socket.inner().try_clone()?) })
    }

    forward! {
        /// The address that it listens on.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn local_addr(&self) -> io::Result<SocketAddr>;

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

    /// Whether an IPv6 listener leaves IPv4 alone. To be set before it is bound, which
    /// only one made from a descriptor can be.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_only_v6(&self, only_v6: bool) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_ipv6_v6only(self.socket.fd(), only_v6)?)
    }

    /// Whether an IPv6 listener leaves IPv4 alone.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn only_v6(&self) -> io::Result<bool> {
        Ok(rustix::net::sockopt::ipv6_v6only(self.socket.fd())?)
    }

    /// Whether [`accept`](Self::accept) fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) instead of waiting. All handles of the
    /// listener do the same; connections do not.
    ///
    /// # Errors
    ///
    /// None, here.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.note_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the moment at which [`accept`](Self::accept) begins to fail with
    /// [`TimedOut`](io::ErrorKind::TimedOut), calls that wait now included, until
    /// another is set; `None` for never. Go's `SetDeadline`.
    ///
    /// ```
    /// let listener = heist::net::TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_deadline(Some(std::time::Instant::now()));
    /// assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.socket.set_deadline(Side::Read, deadline);
    }

    /// Accepts no more: calls that wait fail, [`incoming`](Self::incoming) ends, and the
    /// kernel refuses further connections. That goes for all handles of the listener, as
    /// it is one queue that they accept from. Connections that were accepted live on.
    ///
    /// ```
    /// use heist::sync::Arc;
    /// use heist::net::TcpListener;
    ///
    /// heist::run(|| {
    ///     let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
    ///     let server = heist::go({
    ///         let listener = Arc::clone(&listener);
    ///         move || listener.incoming().count()
    ///     });
    ///     listener.close();
    ///     assert_eq!(server.join().unwrap(), 0);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) {
        self.socket.close_listener();
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

/// The connections of a listener; see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    accepting: Accepting,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    #[track_caller]
    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        self.accepting.next(|| Ok(self.listener.accept()?.0))
    }
}

// Once it is closed, a listener stays so; likewise below.
impl FusedIterator for Incoming<'_> {}

/// The connections of a listener; see [`TcpListener::into_incoming`].
#[derive(Debug)]
pub struct IntoIncoming {
    listener: TcpListener,
    accepting: Accepting,
}

impl Iterator for IntoIncoming {
    type Item = io::Result<TcpStream>;

    #[track_caller]
    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        self.accepting.next(|| Ok(self.listener.accept()?.0))
    }
}

impl FusedIterator for IntoIncoming {}
