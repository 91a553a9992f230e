//! Which descriptors are ready: epoll(7), edge-triggered, and a bell.
//!
//! Each descriptor is added once, for both directions, with a token that comes
//! back with its events. Edge-triggered: an event is reported once for each change,
//! so nobody has to switch interest on and off around a wait.
//!
//! The bell is an eventfd(2): whoever rings it ends a wait. It is never read. It is
//! watched edge-triggered too, so every ring is an event of its own, and the counter
//! would need five hundred years of ringing to be full.

use super::atomic::{AtomicBool, Ordering};
use super::clock;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Events that one wait takes at most.
pub(crate) const BATCH: usize = 128;

/// What is watched.
pub(crate) type Source<'a> = BorrowedFd<'a>;

/// The token of the bell.
const BELL: u64 = u64::MAX;

/// A descriptor has become ready, or may have.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Event(libc::epoll_event);

impl Event {
    const NONE: Event = Event(libc::epoll_event { events: 0, u64: 0 });

    /// What it was added with.
    pub(crate) fn token(&self) -> u64 {
        self.0.u64
    }

    fn has(&self, flags: i32) -> bool {
        self.0.events & flags as u32 != 0
    }

    /// Reading, or accepting, may succeed or fail now.
    pub(crate) fn readable(&self) -> bool {
        self.has(libc::EPOLLIN | libc::EPOLLPRI) || self.ends_reading()
    }

    /// Writing may succeed or fail now.
    pub(crate) fn writable(&self) -> bool {
        self.has(libc::EPOLLOUT) || self.ends_writing()
    }

    /// What is left to read is not told by how much one read returns: the end of
    /// the stream, an error or urgent data is among it.
    pub(crate) fn ends_reading(&self) -> bool {
        self.has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI)
    }

    /// Likewise for writing.
    pub(crate) fn ends_writing(&self) -> bool {
        self.has(libc::EPOLLHUP | libc::EPOLLERR)
    }
}

/// Room for the events of one wait.
pub(crate) struct Batch {
    events: [Event; BATCH],
    len: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Batch { events: [Event::NONE; BATCH], len: 0 }
    }

    /// Whether there is no event of a descriptor in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The events of descriptors; the bell has done its work.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events[..self.len].iter().filter(|event| event.token() != BELL)
    }
}

/// An epoll instance and its bell.
#[derive(Debug)]
pub(crate) struct Epoll {
    epoll: OwnedFd,
    bell: OwnedFd,
}

/// The kernel has no epoll_pwait2 (Linux before 5.11), or a filter forbids it.
static NO_PWAIT2: AtomicBool = AtomicBool::new(false);

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call has just returned it: it is open, and nobody else has
    // it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: neither takes a pointer.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        let bell = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let this = Epoll { epoll, bell };
        this.control(libc::EPOLL_CTL_ADD, this.bell.as_raw_fd(), libc::EPOLLIN, BELL)?;
        Ok(this)
    }

    /// Watches a descriptor, both directions, until it is removed.
    ///
    /// # Errors
    ///
    /// EPERM for one that cannot be waited for, such as a regular file, ENOMEM or
    /// ENOSPC if the kernel has no room.
    pub(crate) fn add(&self, fd: Source<'_>, token: u64) -> io::Result<()> {
        debug_assert_ne!(token, BELL);
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI;
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), interest, token)
    }

    /// Watches it no more. Events that were taken before may still be on their way
    /// to whoever took them.
    pub(crate) fn remove(&self, fd: Source<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), 0, 0)
    }

    fn control(&self, op: libc::c_int, fd: libc::c_int, what: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (what | libc::EPOLLET) as u32, u64: token };
        // SAFETY: the event lives; the kernel copies it.
        let rc = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &mut event) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes what there is, without waiting.
    pub(crate) fn look(&self, batch: &mut Batch) {
        // SAFETY: the array has room for as many events as are asked for.
        let n = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                batch.events.as_mut_ptr().cast(),
                BATCH as i32,
                0,
            )
        };
        batch.len = usize::try_from(n).unwrap_or(0);
    }

    /// Waits for events, for the bell, or until a moment on the monotonic clock;
    /// may return early with nothing.
    pub(crate) fn wait(&self, until: Option<u64>, batch: &mut Batch) {
        let left = until.map(|until| until.saturating_sub(clock::now()));
        batch.len = 0;
        if !NO_PWAIT2.load(Ordering::Relaxed) {
            let n = self.wait_precisely(left, batch);
            if let Ok(n) = usize::try_from(n) {
                batch.len = n;
                return;
            }
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
                return; // EINTR
            }
            NO_PWAIT2.store(true, Ordering::Relaxed);
        }
        // Milliseconds, rounded up: waiting too short would be waiting in a loop.
        let millis = left.map_or(-1, |left| {
            libc::c_int::try_from(left.div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: as in `look`.
        let n = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                batch.events.as_mut_ptr().cast(),
                BATCH as i32,
                millis,
            )
        };
        batch.len = usize::try_from(n).unwrap_or(0);
    }

    fn wait_precisely(&self, left: Option<u64>, batch: &mut Batch) -> libc::c_long {
        let left = left.map(|left| libc::timespec {
            tv_sec: (left / 1_000_000_000) as libc::time_t,
            tv_nsec: (left % 1_000_000_000) as libc::c_long,
        });
        let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the array has room for as many events as are asked for, the timeout
        // is null or lives, and there is no signal mask.
        unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                batch.events.as_mut_ptr(),
                BATCH as libc::c_int,
                left,
                ptr::null::<libc::sigset_t>(),
                0usize,
            )
        }
    }

    /// Ends the present wait, or the next one.
    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes, as an eventfd wants them. It fails only when the
        // counter is full, and then the bell has rung.
        unsafe { libc::write(self.bell.as_raw_fd(), ptr::from_ref(&one).cast(), 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_bell_ends_a_wait_each_time_and_is_no_event() {
        let epoll = Epoll::new().unwrap();
        let mut batch = Batch::new();
        for _ in 0..3 {
            epoll.ring();
            epoll.wait(None, &mut batch);
            assert_eq!((batch.len, batch.iter().count()), (1, 0));
        }
        epoll.wait(Some(clock::now()), &mut batch);
        assert_eq!(batch.len, 0, "one ring, one event");
    }

    #[test]
    fn an_edge_is_told_once_and_the_end_of_a_stream_is_seen() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(near.as_fd(), 7).unwrap();
        let mut batch = Batch::new();
        let mut events = || {
            epoll.look(&mut batch);
            batch.iter().map(|e| (e.token(), e.readable(), e.ends_reading())).collect::<Vec<_>>()
        };
        assert_eq!(events(), [(7, false, false)], "it can be written to");
        far.write_all(b"x").unwrap();
        assert_eq!(events(), [(7, true, false)]);
        assert_eq!(events(), [], "nothing has changed since");
        drop(far);
        assert_eq!(events(), [(7, true, true)]);
        epoll.remove(near.as_fd()).unwrap();
        assert!(epoll.remove(near.as_fd()).is_err());
    }

    /// In whole milliseconds no wait is as short. How long one takes at most nobody can say,
    /// so some of many will do.
    #[test]
    fn a_wait_is_not_rounded_to_milliseconds() {
        let epoll = Epoll::new().unwrap();
        let mut batch = Batch::new();
        epoll.ring();
        if epoll.wait_precisely(None, &mut batch) < 0 {
            return; // the kernel has no such call
        }
        let is_short = |_| {
            let begin = clock::now();
            let until = begin + 100_000;
            epoll.wait(Some(until), &mut batch);
            // Less is a wait that a signal has ended.
            (until..begin + 1_000_000).contains(&clock::now())
        };
        assert!((0..10_000).any(is_short));
    }

    #[test]
    fn a_kernel_without_precise_waits_does_as_well() {
        // The other tests must not mind.
        NO_PWAIT2.store(true, Ordering::Relaxed);
        let (near, mut far) = UnixStream::pair().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(near.as_fd(), 7).unwrap();
        let mut batch = Batch::new();
        epoll.wait(None, &mut batch);
        assert_eq!(batch.len, 1, "it can be written to");
        let until = clock::now() + 900_000;
        epoll.wait(Some(until), &mut batch);
        assert_eq!(batch.len, 0);
        assert!(clock::now() >= until, "not in vain");
        far.write_all(b"x").unwrap();
        epoll.wait(None, &mut batch);
        assert!(batch.iter().all(|event| event.readable()));
        NO_PWAIT2.store(false, Ordering::Relaxed);
    }
}
