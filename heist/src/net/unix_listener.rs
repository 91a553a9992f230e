//! [`UnixListener`].

use super::forward::forward;
use super::incoming::Accepting;
use super::socket::Socket;
use super::{UnixAddr, UnixStream};
use crate::sched::netpoll::Side;
use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::os::unix::net as std_unix;
use std::panic::Location;
use std::path::Path;
use std::time::Instant;

/// Accepts connections to a Unix socket: [`std::os::unix::net::UnixListener`], whose
/// calls park the goroutine.
///
/// ```
/// use heist::net::{UnixListener, UnixStream};
/// use std::io::{Read, Write};
///
/// heist::run(|| {
///     let path = std::env::temp_dir().join(format!("heist-doc-{}", std::process::id()));
///     let listener = UnixListener::bind(&path)?;
///     let server = heist::go(move || listener.accept()?.0.write_all(b"hello"));
///     let mut text = String::new();
///     UnixStream::connect(&path)?.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     std::fs::remove_file(&path)?;
///     server.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener {
    pub(super) socket: Socket<std_unix::UnixListener>,
}

impl UnixListener {
    fn of(listener: std_unix::UnixListener) -> io::Result<UnixListener> {
        // Underneath: accept(2) cannot be told otherwise that it must not wait.
        listener.set_nonblocking(true)?;
        Ok(UnixListener { socket: Socket::new(listener) })
    }

    /// Listens on a socket with a name in the file system, which must be free.
    ///
    /// # Errors
    ///
    /// Those of bind(2).
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        Self::of(std_unix::UnixListener::bind(path)?)
    }

    /// Listens on an address.
    ///
    /// # Errors
    ///
    /// Those of bind(2).
    pub fn bind_addr(socket_addr: &UnixAddr) -> io::Result<UnixListener> {
        Self::of(std_unix::UnixListener::bind_addr(socket_addr)?)
    }

    /// Accepts a connection. Several goroutines may do so at a time.
    ///
    /// # Errors
    ///
    /// Those of accept(2). Some pass by themselves: see [`incoming`](Self::incoming).
    #[track_caller]
    pub fn accept(&self) -> io::Result<(UnixStream, UnixAddr)> {
        let (stream, addr) =
            self.socket.accept(Location::caller(), std_unix::UnixListener::accept)?;
        Ok((UnixStream { socket: Socket::new(stream) }, addr))
    }

    /// The connections, one after the other, until the listener is
    /// [closed](Self::close). What passes by itself is no error here, as with
    /// [`TcpListener::incoming`](super::TcpListener::incoming).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, accepting: Accepting::default() }
    }

    /// Another handle of the same listener.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<UnixListener> {
        Ok(UnixListener { socket: self.socket.again(self.socket.inner().try_clone()?) })
    }

    forward! {
        /// The address that it listens on.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn local_addr(&self) -> io::Result<UnixAddr>;

        /// Takes the error that the socket has, if any.
        ///
        /// # Errors
        ///
        /// If the kernel does not tell.
        fn take_error(&self) -> io::Result<Option<io::Error>>;
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
    /// another is set; `None` for never.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.socket.set_deadline(Side::Read, deadline);
    }

    /// Accepts no more: calls that wait fail, [`incoming`](Self::incoming) ends, and the
    /// kernel refuses further connections. That goes for all handles of the listener, as
    /// it is one queue that they accept from. Connections that were accepted live on.
    pub fn close(&self) {
        self.socket.close_listener();
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

/// As with std.
impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = Incoming<'a>;

    fn into_iter(self) -> Incoming<'a> {
        self.incoming()
    }
}

/// The connections of a listener; see [`UnixListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a UnixListener,
    accepting: Accepting,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    #[track_caller]
    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        self.accepting.next(|| Ok(self.listener.accept()?.0))
    }
}

// Once it is closed, a listener stays so.
impl FusedIterator for Incoming<'_> {}
