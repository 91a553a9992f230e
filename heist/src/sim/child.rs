//! A process for each run.
//!
//! heist keeps what it allocates and has statics, so a run that should replay
//! exactly must start in a process that has run nothing; and a scheduler that
//! was broken on purpose may do anything to its process.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It said this.
    Done(String),
    /// It said this, and that it failed.
    Failed(String),
    /// A signal ended it.
    Killed(i32),
    /// It took longer than it may.
    Hung,
}

/// A child at work.
struct Child<J> {
    job: J,
    process: libc::pid_t,
    pipe: OwnedFd,
    said: Vec<u8>,
    deadline: Instant,
}

/// Where the child writes to, in a child.
static OUTPUT: AtomicI32 = AtomicI32::new(-1);

/// Does each job in a process of its own, `parallel` at a time, and tells how it
/// ended. Stops early if it is told to.
pub(super) fn each<J>(
    jobs: impl IntoIterator<Item = J>,
    parallel: usize,
    patience: Duration,
    work: impl Fn(&J) -> String,
    mut ended: impl FnMut(J, End) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut jobs = jobs.into_iter().fuse();
    let mut children: Vec<Child<J>> = Vec::new();
    loop {
        while children.len() < parallel.max(1) {
            let Some(job) = jobs.next() else { break };
            children.push(start(job, patience, &work)?);
        }
        if children.is_empty() {
            return Ok(());
        }
        let Some(index) = wait_for_one(&mut children)? else { continue };
        let child = children.swap_remove(index);
        let (job, end) = child.end();
        if ended(job, end).is_break() {
            children.into_iter().for_each(|child| drop(child.kill()));
            return Ok(());
        }
    }
}

fn start<J>(job: J, patience: Duration, work: impl Fn(&J) -> String) -> io::Result<Child<J>> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors, which nobody else owns.
    let (pipe, output) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: the child runs on its only thread. It allocates, which glibc allows
    // after a fork, takes no lock that a thread of the parent may have had, and
    // leaves by `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            OUTPUT.store(output.as_raw_fd(), Ordering::Relaxed);
            // Every panic is a mistake: a scenario that wants to unwind does it
            // without one (`resume_unwind`).
            std::panic::set_hook(Box::new(|info| {
                crate::prim::sim::violate(&format!("panic: {info}"))
            }));
            let said = work(&job);
            exit(0, &said)
        }
        process => {
            let deadline = Instant::now() + patience;
            Ok(Child { job, process, pipe, said: Vec::new(), deadline })
        }
    }
}

/// Ends this child, which says this.
pub(super) fn done(text: &str) -> ! {
    exit(0, text)
}

/// Ends this child with a report of what was broken.
pub(super) fn fail(report: &str) -> ! {
    exit(1, report)
}

fn exit(code: i32, text: &str) -> ! {
    let output = OUTPUT.load(Ordering::Relaxed);
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the pointer and the length are of a live slice.
        let n = unsafe { libc::write(output, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => rest = &rest[n..],
            _ => break,
        }
    }
    // SAFETY: without exit handlers: they are the parent's.
    unsafe { libc::_exit(code) }
}

/// Reads what children say until one of them has ended or is late; its index.
fn wait_for_one<J>(children: &mut [Child<J>]) -> io::Result<Option<usize>> {
    let now = Instant::now();
    if let Some(late) = children.iter().position(|child| child.deadline <= now) {
        return Ok(Some(late));
    }
    let mut pipes: Vec<libc::pollfd> = children
        .iter()
        .map(|child| libc::pollfd { fd: child.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let first = children.iter().map(|child| child.deadline).min().unwrap_or(now);
    let timeout = (first - now).as_millis().min(1000) as i32 + 1;
    // SAFETY: the pointer and the length are of a live vector.
    if unsafe { libc::poll(pipes.as_mut_ptr(), pipes.len() as libc::nfds_t, timeout) } < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
    }
    let ready = pipes.iter().position(|pipe| pipe.revents != 0);
    Ok(ready.filter(|index| children[*index].read_some() == 0))
}

impl<J> Child<J> {
    /// How many bytes it has said now; none if it is over.
    fn read_some(&mut self) -> usize {
        let mut bytes = [0u8; 16 << 10];
        // SAFETY: the pointer and the length are of a live array.
        let n =
            unsafe { libc::read(self.pipe.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        let n = usize::try_from(n).unwrap_or(0);
        self.said.extend_from_slice(&bytes[..n]);
        n
    }

    /// Collects a child that has closed its pipe, or is late.
    fn end(self) -> (J, End) {
        if self.deadline <= Instant::now() {
            return (self.kill(), End::Hung);
        }
        let status = wait(self.process);
        let said = String::from_utf8_lossy(&self.said).into_owned();
        let end = if libc::WIFSIGNALED(status) {
            End::Killed(libc::WTERMSIG(status))
        } else if libc::WEXITSTATUS(status) == 0 {
            End::Done(said)
        } else {
            End::Failed(said)
        };
        (self.job, end)
    }

    fn kill(self) -> J {
        // SAFETY: our own child, which nobody has collected.
        unsafe { libc::kill(self.process, libc::SIGKILL) };
        wait(self.process);
        self.job
    }
}

fn wait(process: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is live; the child is ours.
    while unsafe { libc::waitpid(process, &mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    status
}
