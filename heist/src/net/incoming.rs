//! Accepting one connection after the other, and surviving it.

use crate::prim::atomic::{AtomicBool, Ordering};
use crate::sched::netpoll;
use crate::thread;
use std::io;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(5);
const LAST: Duration = Duration::from_secs(1);

/// How an accept loop goes on.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// How long the last pause was.
    pause: Duration,
}

impl Accepting {
    /// The next connection, or an error that does not pass by itself; `None` once the
    /// listener is closed.
    ///
    /// - A connection that its peer has given up already is no reason to stop.
    /// - When the process has no descriptors left, others must end first. The loop
    ///   pauses, longer each time up to a second, and says so once.
    pub(super) fn next<T>(
        &mut self,
        mut accept: impl FnMut() -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        loop {
            let error = match accept() {
                Ok(value) => {
                    self.pause = Duration::ZERO;
                    return Some(Ok(value));
                }
                Err(error) => error,
            };
            if netpoll::is_closed(&error) {
                return None;
            }
            match error.raw_os_error() {
                // The last are errors of the network that accept(2) hands on.
                Some(
                    libc::ECONNABORTED
                    | libc::EPROTO
                    | libc::ECONNRESET
                    | libc::ENETDOWN
                    | libc::ENOPROTOOPT
                    | libc::EHOSTDOWN
                    | libc::ENONET
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH,
                ) => {}
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    say_once(&error);
                    self.pause = (self.pause * 2).clamp(FIRST, LAST);
                    thread::sleep(self.pause);
                }
                _ => return Some(Err(error)),
            }
        }
    }
}

fn say_once(error: &io::Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        crate::prim::os::write_stderr(
            format!(
                "heist: cannot accept connections ({error}); trying again until others end \
                 (limits: ulimit -n, fs.file-max)\n"
            )
            .as_bytes(),
        );
    }
}
