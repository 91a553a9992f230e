//! What all sockets are made of: std's socket, and how to wait for it.
//!
//! Streams and datagram sockets stay as std leaves them, blocking as far as the
//! kernel knows: each call says that it must not wait (`MSG_DONTWAIT`). So one that is
//! given away, or whose descriptor others use, is what they expect. Only a listener is
//! non-blocking underneath, since accept(2) cannot be told.

use crate::io::fd::{has_failed, is_shut};
use crate::io::whole::Whole;
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use crate::runtime::current_sched;
use crate::sched::netpoll::{self, Call, Patience, Pollable, Side};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between calls that have to be tried again, in nanoseconds: each pause is twice as long
/// as the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    first: u64,
    last: u64,
}

impl Pauses {
    /// Nobody tells that the call could be made.
    pub(super) const UNTOLD: Pauses = Pauses { first: 50_000, last: 10_000_000 };
    /// Somebody does, unless it has to fail.
    pub(super) const TOLD: Pauses = Pauses { first: 1_000_000, last: 100_000_000 };
}

/// Which kind of stream is written to: the kernel tells those who wait of different things.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Tcp,
    Unix,
}

/// What the handles of a socket have in common: with std the kernel keeps it.
#[derive(Debug)]
struct Options {
    nonblocking: AtomicBool,
    /// A listener that was closed, by one handle for all of them.
    closed: AtomicBool,
    /// How many copies run that need the kernel's non-blocking mode. Locked while that
    /// mode changes, so that it is always what this count and `nonblocking` say: a copy
    /// that begins while another ends would otherwise wait in the kernel, deaf to
    /// deadlines and on a thread of ours.
    lent: Lock<u32>,
    /// Of reading and writing, in nanoseconds; 0 for none.
    timeouts: [AtomicU64; 2],
}

// Each of them is set in one step; nothing that is locked panics.
impl UnwindSafe for Options {}
impl RefUnwindSafe for Options {}

impl Default for Options {
    fn default() -> Self {
        Options {
            nonblocking: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            lent: Lock::new(Rank::Leaf, 0),
            timeouts: Default::default(),
        }
    }
}

/// A socket of std's kind `S`.
pub(super) struct Socket<S: AsFd> {
    /// Always there, until it is taken out.
    inner: Option<S>,
    poll: Pollable,
    options: Arc<Options>,
}

impl<S: AsFd> Socket<S> {
    /// A socket that was made just now.
    pub(super) fn new(inner: S) -> Self {
        Socket { inner: Some(inner), poll: Pollable::new(), options: Arc::default() }
    }

    /// A socket that others have used, with its timeouts.
    pub(super) fn adopt(inner: S, timeouts: [io::Result<Option<Duration>>; 2]) -> Self {
        let socket = Socket::new(inner);
        let flags = rustix::fs::fcntl_getfl(socket.fd());
        let nonblocking = flags.is_ok_and(|f| f.contains(rustix::fs::OFlags::NONBLOCK));
        socket.note_nonblocking(nonblocking);
        let [read, write] = timeouts;
        socket.note_timeout(Side::Read, read.ok().flatten());
        socket.note_timeout(Side::Write, write.ok().flatten());
        socket
    }

    /// Another handle of the same socket, of which `inner` is a duplicate.
    pub(super) fn again(&self, inner: S) -> Self {
        let options = Arc::clone(&self.options);
        Socket { inner: Some(inner), poll: Pollable::new(), options }
    }

    #[inline(always)]
    pub(super) fn inner(&self) -> &S {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("only `into_inner` takes it, and the socket with it"),
        }
    }

    pub(super) fn into_inner(mut self) -> S {
        self.poll.release(self.fd());
        match self.inner.take() {
            Some(inner) => inner,
            None => unreachable!("as in `inner`"),
        }
    }

    #[inline(always)]
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.inner().as_fd()
    }

    pub(super) fn note_nonblocking(&self, nonblocking: bool) {
        self.options.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        self.options.nonblocking.load(Ordering::Relaxed)
    }

    /// The kernel has accepted it, so it is not zero.
    pub(super) fn note_timeout(&self, side: Side, timeout: Option<Duration>) {
        let nanos = timeout.map_or(0, crate::prim::nanos);
        self.options.timeouts[side as usize].store(nanos, Ordering::Relaxed);
    }

    #[inline(always)]
    fn patience(&self, side: Side) -> Patience {
        if self.is_nonblocking() {
            return Patience::None;
        }
        match self.options.timeouts[side as usize].load(Ordering::Relaxed) {
            0 => Patience::Forever,
            nanos => Patience::For(nanos),
        }
    }

    #[inline(always)]
    fn call<P: Fn() -> Patience>(
        &self,
        side: Side,
        site: &'static Location<'static>,
        patience: P,
    ) -> Call<'_, P> {
        Call { fd: self.fd(), side, patience, site, home: current_sched }
    }

    /// Makes a call that does not wait, and waits in its place.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn run<R>(
        &self,
        side: Side,
        site: &'static Location<'static>,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let call = self.call(side, site, || self.patience(side));
        let fd = call.fd;
        self.poll.run(call, || attempt(fd))
    }

    /// As [`run`](Self::run), for a call that receives a message. If the socket was shut
    /// down and there is none, `end` says what comes of it: a call that may wait would
    /// return an empty message, but one that must not says that it would block.
    ///
    /// The kernel announces a shutdown to who waits, so that nobody asks for one before.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn receive<R>(
        &self,
        site: &'static Location<'static>,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
        end: impl Fn() -> io::Result<R>,
    ) -> io::Result<R> {
        self.run(Side::Read, site, |fd| match attempt(fd) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && self.poll.has_ended(Side::Read)
                    && !self.is_nonblocking()
                    && is_shut(&fd) =>
            {
                end()
            }
            received => received,
        })
    }

    /// As [`run`](Self::run), for a call that transfers at most `len` bytes of a TCP
    /// stream: if it transfers less, there is no more (see `poll::direction`).
    ///
    /// Not for Unix sockets, where a read also ends before a message that carries
    /// descriptors.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn transfer(
        &self,
        side: Side,
        len: usize,
        site: &'static Location<'static>,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let call = self.call(side, site, || self.patience(side));
        let fd = call.fd;
        self.poll.run_short(call, |n| *n > 0 && *n < len, || attempt(fd))
    }

    /// A write to a stream that ends when all `len` bytes are written. `attempt` leaves out
    /// what is written already, so many bytes. Not by [`transfer`](Self::transfer): whatever
    /// ends a write early, it is not that there was room for no more.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn write(
        &self,
        stream: Stream,
        len: usize,
        site: &'static Location<'static>,
        mut attempt: impl FnMut(BorrowedFd<'_>, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut whole = Whole::new(len);
        let some =
            |fd: BorrowedFd<'_>| whole.attempt(|| self.goes_on(fd), |done| attempt(fd, done));
        let written = match stream {
            Stream::Tcp => self.run(Side::Write, site, some),
            Stream::Unix => self.run_unix(Side::Write, site, some),
        };
        whole.end(written)
    }

    /// Whether a write of which a part is written goes on. The kernel tells an error once,
    /// and it is the next write that can tell the caller.
    #[cold]
    fn goes_on(&self, fd: BorrowedFd<'_>) -> bool {
        !self.is_nonblocking() && !has_failed(&fd)
    }

    /// As [`run`](Self::run), with a patience of its own.
    pub(super) fn run_for<R>(
        &self,
        side: Side,
        patience: Patience,
        site: &'static Location<'static>,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.fd();
        self.poll.run(self.call(side, site, || patience), || attempt(fd))
    }

    /// As [`run`](Self::run), for a Unix stream. The kernel does not report when writing
    /// was shut down, by another handle or at the other end: whoever waits to write has
    /// to ask.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn run_unix<R>(
        &self,
        side: Side,
        site: &'static Location<'static>,
        attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        match side {
            Side::Read => self.run(side, site, attempt),
            Side::Write => self.run_asking(side, Pauses::TOLD, site, attempt),
        }
    }

    /// As [`run`](Self::run), for a call of which the kernel does not report when it
    /// could be made: it is tried again and again.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn run_asking<R>(
        &self,
        side: Side,
        pauses: Pauses,
        site: &'static Location<'static>,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.fd();
        let (mut pause, mut waited) = (pauses.first, 0);
        loop {
            let patience = || match self.patience(side) {
                Patience::None => Patience::None,
                Patience::For(nanos) => Patience::For(pause.min(nanos.saturating_sub(waited))),
                Patience::Forever => Patience::For(pause),
            };
            match self.poll.run(self.call(side, site, patience), || attempt(fd)) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && self.waits_longer(side, waited + pause) =>
                {
                    waited += pause;
                    pause = (2 * pause).min(pauses.last);
                }
                result => return result,
            }
        }
    }

    /// Whether a call may wait longer than so many nanoseconds.
    #[cold]
    fn waits_longer(&self, side: Side, waited: u64) -> bool {
        match self.patience(side) {
            Patience::None => false,
            Patience::For(nanos) => nanos > waited,
            Patience::Forever => true,
        }
    }

    /// Those who wait to write on this handle try again at once.
    pub(super) fn nudge_writers(&self) {
        self.poll.nudge(Side::Write);
    }

    /// Accepts a connection, until the listener is closed.
    ///
    /// Those who wait on its other handles are woken by what the kernel reports of the
    /// shutdown, and try once more. It would say to them that the listener does not
    /// listen (TCP), or that they should wait for ever (Unix).
    #[inline(always)] // as `park::yield_now`
    pub(super) fn accept<R>(
        &self,
        site: &'static Location<'static>,
        mut accept: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        // Acquire: pairs with the release in `close_listener`.
        let closed = || self.options.closed.load(Ordering::Acquire);
        let accepted = self.run(Side::Read, site, |_| {
            if closed() { Err(netpoll::closed()) } else { accept(self.inner()) }
        });
        // Again: it may have been closed just now, which explains an error, and a close comes
        // before a deadline that has passed.
        accepted.map_err(|error| if closed() { netpoll::closed() } else { error })
    }

    pub(super) fn set_deadline(&self, side: Side, deadline: Option<Instant>) {
        self.poll.set_deadline(side, deadline.map(clock::at), current_sched);
    }

    /// Whether calls fail instead of waiting. In the kernel it stays non-blocking as
    /// long as it is lent.
    pub(super) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let lent = self.options.lent.lock();
        rustix::io::ioctl_fionbio(self.fd(), nonblocking || *lent > 0)?;
        self.note_nonblocking(nonblocking);
        Ok(())
    }

    /// Puts it into the kernel's non-blocking mode, or back when the last one gives it
    /// back: for calls that cannot be told not to wait.
    pub(super) fn lend(&self, on: bool) -> io::Result<()> {
        let mut lent = self.options.lent.lock();
        let before = *lent;
        *lent = if on { before + 1 } else { before - 1 };
        if self.is_nonblocking() || (before > 0) == (*lent > 0) {
            return Ok(());
        }
        rustix::io::ioctl_fionbio(self.fd(), on).inspect_err(|_| {
            // Who was refused gives nothing back.
            if on {
                *lent = before;
            }
        })?;
        Ok(())
    }

    /// Calls on this handle fail from now on, those that wait now included.
    pub(super) fn close(&self) {
        self.poll.close();
    }

    /// As [`close`](Self::close), and the connection ends: the other end is told, and
    /// other handles find that there is nothing more.
    pub(super) fn close_stream(&self) {
        self.close();
        self.shut_down();
    }

    /// Nobody accepts any more, on whichever handle, and the kernel refuses connections.
    pub(super) fn close_listener(&self) {
        // First, so that whoever the kernel wakes finds it. Release: pairs with the
        // acquire in `accept`.
        self.options.closed.store(true, Ordering::Release);
        self.close();
        self.shut_down();
    }

    fn shut_down(&self) {
        // It fails if there is no other end, any more.
        let _ = rustix::net::shutdown(self.fd(), rustix::net::Shutdown::Both);
    }
}

impl<S: AsFd> Drop for Socket<S> {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            self.poll.release(inner.as_fd());
        }
    }
}

/// As std prints it.
impl<S: AsFd + fmt::Debug> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// So many bytes are a request.
    const REQUEST: usize = 64;

    /// Answers requests of a busy connection; returns how often it was tried to read and
    /// to write.
    fn serve(stream: TcpStream, requests: usize) -> (usize, usize) {
        let socket = Socket::new(stream);
        let site = Location::caller();
        let (reads, writes) = (Cell::new(0), Cell::new(0));
        for _ in 0..requests {
            let mut request = [0; 2 * REQUEST];
            let n = socket.transfer(Side::Read, request.len(), site, |_| {
                reads.set(reads.get() + 1);
                let flags = rustix::net::RecvFlags::DONTWAIT;
                Ok(rustix::net::recv(socket.fd(), &mut request[..], flags)?.1)
            });
            assert_eq!(n.unwrap(), REQUEST, "the client sends one at a time");
            let n = socket.transfer(Side::Write, REQUEST, site, |_| {
                writes.set(writes.get() + 1);
                let flags = rustix::net::SendFlags::DONTWAIT;
                Ok(rustix::net::send(socket.fd(), &request[..REQUEST], flags)?)
            });
            assert_eq!(n.unwrap(), REQUEST);
        }
        (reads.get(), writes.get())
    }

    /// For as long as it is lent, by whomever, the kernel does not wait.
    #[test]
    fn what_is_lent_does_not_wait_in_the_kernel() {
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Socket::new(stream.try_clone().unwrap());
        let in_kernel = || {
            let flags = rustix::fs::fcntl_getfl(&stream).unwrap();
            flags.contains(rustix::fs::OFlags::NONBLOCK)
        };
        socket.lend(true).unwrap();
        socket.lend(true).unwrap();
        socket.set_nonblocking(false).unwrap();
        assert!(in_kernel() && !socket.is_nonblocking());
        socket.lend(false).unwrap();
        assert!(in_kernel(), "one still has it");
        socket.lend(false).unwrap();
        assert!(!in_kernel(), "all have given it back");
        socket.lend(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.lend(false).unwrap();
        assert!(in_kernel(), "as it was set meanwhile");
        socket.set_nonblocking(false).unwrap();

        // One begins while the other ends.
        let lend = || {
            for _ in 0..30_000 {
                socket.lend(true).unwrap();
                assert!(in_kernel());
                socket.lend(false).unwrap();
            }
        };
        std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(lend))));
        assert!(!in_kernel());
    }

    #[test]
    fn a_request_of_a_busy_connection_is_one_read_and_one_write() {
        const REQUESTS: usize = 200;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (server, _) = listener.accept().unwrap();
        let runtime = crate::Builder::new().max_procs(2).build().unwrap();
        let served = runtime.go(move || serve(server, REQUESTS));
        for _ in 0..REQUESTS {
            client.write_all(&[7; REQUEST]).unwrap();
            client.read_exact(&mut [0; REQUEST]).unwrap();
        }
        let (reads, writes) = served.join().unwrap();
        assert_eq!(writes, REQUESTS);
        // The first one may be tried in vain: only who has waited is told of events.
        assert!((REQUESTS..=REQUESTS + 1).contains(&reads), "{reads} reads");
    }

    /// However a wait ends, nobody is in a list afterwards, while the socket is still
    /// there; and once it is gone, its block is free. In a process of its own: others
    /// wait, too.
    #[test]
    fn nobody_is_left_waiting() {
        const CHILD: &str = "HEIST_TEST_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", std::thread::current().name().unwrap()]);
            let output = again.env(CHILD, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
            return;
        }
        let runtime = crate::Builder::new().max_procs(2).build().unwrap();
        // On a plain thread, and on a goroutine.
        every_end_of_a_wait();
        runtime.run(every_end_of_a_wait);
        let (near, _far) = crate::net::UnixStream::pair().unwrap();
        let near = Arc::new(near);
        drop(runtime.go({
            let near = Arc::clone(&near);
            move || (&*near).read(&mut [0])
        }));
        while !netpoll::anybody_waits() {
            std::thread::yield_now();
        }
        drop(runtime);
        assert!(!netpoll::anybody_waits(), "it was unwound");
        drop(near);
        assert_eq!(netpoll::blocks(), 0);
    }

    /// By a timeout, a deadline, data, the end, a close, a connection, and on each side.
    fn every_end_of_a_wait() {
        use crate::net::{TcpListener, TcpStream, UnixStream};
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        listener.set_deadline(Some(Instant::now() + Duration::from_millis(5)));
        listener.accept().unwrap_err();
        listener.set_deadline(None);
        assert!(!netpoll::anybody_waits(), "for connections");
        let accepts = {
            let listener = Arc::clone(&listener);
            waiting(move || listener.accept().unwrap().0)
        };
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _accepted = accepts.join().unwrap();
        assert!(!netpoll::anybody_waits(), "for a connection that has come");
        drop(stream);

        let (near, far) = UnixStream::pair().unwrap();
        let near = Arc::new(near);
        near.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        (&*near).read(&mut [0]).unwrap_err();
        assert!(!netpoll::anybody_waits(), "to read, with a timeout");
        near.set_read_timeout(None).unwrap();
        near.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        (&*near).write_all(&vec![0; 10 << 20]).unwrap_err();
        assert!(!netpoll::anybody_waits(), "to write, with a timeout");
        near.set_read_deadline(Some(Instant::now() + Duration::from_millis(5)));
        (&*near).read(&mut [0]).unwrap_err();
        near.set_read_deadline(None);
        assert!(!netpoll::anybody_waits(), "to read, with a deadline");
        let reader = || {
            let near = Arc::clone(&near);
            waiting(move || (&*near).read(&mut [0; 8]).ok())
        };
        let reads = reader();
        (&far).write_all(b"x").unwrap();
        assert_eq!(reads.join().unwrap(), Some(1));
        assert!(!netpoll::anybody_waits(), "for what has come");
        let (one, two) = (reader(), reader());
        far.shutdown(crate::net::Shutdown::Write).unwrap();
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (Some(0), Some(0)));
        assert!(!netpoll::anybody_waits(), "for more than there is");
        let accepts = {
            let listener = Arc::clone(&listener);
            waiting(move || listener.accept().is_ok())
        };
        listener.close();
        assert!(!accepts.join().unwrap());
        assert!(!netpoll::anybody_waits(), "for a listener that was closed");
    }

    /// Starts a goroutine, and returns when it waits.
    fn waiting<T: Send + 'static>(
        f: impl FnOnce() -> T + Send + 'static,
    ) -> crate::thread::JoinHandle<T> {
        let handle = crate::go(f);
        while !netpoll::anybody_waits() {
            crate::thread::yield_now();
        }
        handle
    }
}
