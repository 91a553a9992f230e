//! [`Child`].

use super::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use crate::io::pollable::Pollable;
use crate::prim::os;
use crate::thread;
use crate::{blocking, syscall};
use std::fmt;
use std::io::{self, Read};

/// A process that was started: [`std::process::Child`] that is waited for without a
/// thread.
///
/// As with std's, dropping it neither ends the process nor waits for it.
///
/// ```
/// use heist::process::Command;
///
/// # fn main() -> std::io::Result<()> {
/// heist::run(|| {
///     let mut children = Vec::new();
///     for i in 0..3 {
///         children.push(Command::new("sh").arg("-c").arg(format!("exit {i}")).spawn()?);
///     }
///     for (i, mut child) in children.into_iter().enumerate() {
///         assert_eq!(child.wait()?.code(), Some(i as i32));
///     }
///     Ok(())
/// })
/// # }
/// ```
pub struct Child {
    inner: std::process::Child,
    /// What the child reads from, if it is a pipe and was not taken.
    pub stdin: Option<ChildStdin>,
    /// What the child writes to, if it is a pipe and was not taken.
    pub stdout: Option<ChildStdout>,
    /// What the child reports errors to, if it is a pipe and was not taken.
    pub stderr: Option<ChildStderr>,
}

impl Child {
    pub(super) fn new(mut inner: std::process::Child) -> io::Result<Child> {
        let stdin = inner.stdin.take().map(ChildStdin::new).transpose()?;
        let stdout = inner.stdout.take().map(ChildStdout::new).transpose()?;
        let stderr = inner.stderr.take().map(ChildStderr::new).transpose()?;
        Ok(Child { inner, stdin, stdout, stderr })
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Ends the process. One that has ended is no error.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.kill()
    }

    /// Closes its standard input, if that was not taken, and waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(status) = self.inner.try_wait()? {
            return Ok(status);
        }
        // The number is the child's as long as nobody has waited for it, and only we
        // may do that.
        let ended =
            os::pidfd_open(self.inner.id()).and_then(|pidfd| Pollable::new(pidfd).wait_readable());
        match ended {
            Ok(()) => syscall(|| self.inner.wait()),
            // A kernel before 5.3, a sandbox, or no descriptors: with a thread, then.
            Err(_) => blocking(|| self.inner.wait()),
        }
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait()
    }

    /// Closes its standard input, and waits for its end and for all that it writes to
    /// its pipes.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        match (self.stdout.take(), self.stderr.take()) {
            (Some(mut out), Some(mut err)) => {
                // At the same time: the child may wait for either to be read.
                thread::scope(|scope| {
                    let errors = scope.spawn(|| err.read_to_end(&mut stderr));
                    out.read_to_end(&mut stdout)?;
                    errors.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })?;
            }
            (Some(mut out), None) => drop(out.read_to_end(&mut stdout)?),
            (None, Some(mut err)) => drop(err.read_to_end(&mut stderr)?),
            (None, None) => {}
        }
        let status = self.wait()?;
        Ok(Output { status, stdout, stderr })
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}
