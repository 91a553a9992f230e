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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::clock;

    /// What a loop makes of such errors, one after the other, and then a connection;
    /// how often it has accepted; and how long it would pause next.
    fn after(errors: &[i32]) -> (Option<Result<&'static str, i32>>, usize, Duration) {
        let (mut accepting, mut calls) = (Accepting::default(), 0);
        let mut paused = Duration::ZERO;
        let next = accepting.next(|| {
            calls += 1;
            match errors.get(calls - 1) {
                Some(error) => Err(io::Error::from_raw_os_error(*error)),
                None => Ok("a connection"),
            }
        });
        if errors.len() >= calls {
            paused = accepting.pause;
        }
        (next.map(|next| next.map_err(|error| error.raw_os_error().unwrap_or(0))), calls, paused)
    }

    #[test]
    fn connections_that_were_given_up_are_passed_over() {
        let given_up = [libc::ECONNABORTED, libc::EPROTO, libc::ECONNRESET, libc::ENETUNREACH];
        assert_eq!(after(&given_up), (Some(Ok("a connection")), 5, Duration::ZERO));
    }

    #[test]
    fn a_lack_of_descriptors_is_waited_out() {
        let before = clock::now();
        let lacks = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS];
        assert_eq!(after(&lacks), (Some(Ok("a connection")), 4, Duration::ZERO));
        let pauses = clock::now() - before;
        assert!(pauses >= 7 * FIRST.as_nanos() as u64, "longer each time: {pauses} ns");
    }

    #[test]
    fn other_errors_are_for_the_caller() {
        assert_eq!(after(&[libc::EINVAL]), (Some(Err(libc::EINVAL)), 1, Duration::ZERO));
        assert_eq!(
            after(&[libc::EMFILE, libc::EBADF]),
            (Some(Err(libc::EBADF)), 2, FIRST),
            "it goes on from there"
        );
    }

    #[test]
    fn a_closed_listener_ends_the_loop() {
        let closed = || Err::<(), _>(io::Error::new(io::ErrorKind::ConnectionAborted, "closed"));
        assert!(Accepting::default().next(closed).is_none());
    }
}
