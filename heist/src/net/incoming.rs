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
        accept: impl FnMut() -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        self.next_with(accept, thread::sleep)
    }

    fn next_with<T>(
        &mut self,
        mut accept: impl FnMut() -> io::Result<T>,
        mut sleep: impl FnMut(Duration),
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
                    | libc::EOPNOTSUPP
                    | libc::ENETUNREACH,
                ) => {}
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    say_once(&error);
                    self.pause = (self.pause * 2).clamp(FIRST, LAST);
                    sleep(self.pause);
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
                "heist: cannot accept connections ({error}); trying again until others end\n\t\
                 (limits: ulimit -n, fs.file-max)\n"
            )
            .as_bytes(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a loop makes of such errors, one after the other, and then a connection;
    /// how often it has accepted; and its pauses, in milliseconds.
    fn after(errors: &[i32]) -> (Option<Result<&'static str, i32>>, usize, Vec<u128>) {
        after_in(&mut Accepting::default(), errors)
    }

    fn after_in(
        accepting: &mut Accepting,
        errors: &[i32],
    ) -> (Option<Result<&'static str, i32>>, usize, Vec<u128>) {
        let (mut calls, mut pauses) = (0, Vec::new());
        let accept = || {
            calls += 1;
            match errors.get(calls - 1) {
                Some(error) => Err(io::Error::from_raw_os_error(*error)),
                None => Ok("a connection"),
            }
        };
        let next = accepting.next_with(accept, |pause| pauses.push(pause.as_millis()));
        (next.map(|next| next.map_err(|error| error.raw_os_error().unwrap_or(0))), calls, pauses)
    }

    #[test]
    fn connections_that_were_given_up_are_passed_over() {
        let given_up = [libc::ECONNABORTED, libc::EPROTO, libc::ECONNRESET, libc::ENETUNREACH];
        assert_eq!(after(&given_up), (Some(Ok("a connection")), 5, vec![]));
    }

    #[test]
    fn a_lack_of_descriptors_is_waited_out() {
        let mut accepting = Accepting::default();
        let lacks = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS];
        let served = Some(Ok("a connection"));
        assert_eq!(after_in(&mut accepting, &lacks), (served, 4, vec![5, 10, 20]));
        // A connection, and the next lack is another one.
        assert_eq!(after_in(&mut accepting, &[libc::ENOMEM]), (served, 2, vec![5]));
        let many = [libc::EMFILE; 10];
        let pauses = vec![5, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000];
        assert_eq!(after(&many), (served, 11, pauses));
    }

    #[test]
    fn other_errors_are_for_the_caller() {
        assert_eq!(after(&[libc::EINVAL]), (Some(Err(libc::EINVAL)), 1, vec![]));
        let mut accepting = Accepting::default();
        let lack = [libc::EMFILE, libc::EBADF];
        assert_eq!(after_in(&mut accepting, &lack), (Some(Err(libc::EBADF)), 2, vec![5]));
        let served = Some(Ok("a connection"));
        assert_eq!(
            after_in(&mut accepting, &[libc::EMFILE]),
            (served, 2, vec![10]),
            "it goes on from there"
        );
    }

    #[test]
    fn a_closed_listener_ends_the_loop() {
        let closed = || Err::<(), _>(io::Error::new(io::ErrorKind::ConnectionAborted, "closed"));
        assert!(Accepting::default().next(closed).is_none());
    }
}
