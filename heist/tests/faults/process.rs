//! Processes: what a test starts, and how one ends.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How a process ended, and what it said.
pub(crate) struct Ended {
    pub(crate) status: std::process::ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    #[track_caller]
    pub(crate) fn assert_says(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.stderr.contains(part), "no '{part}' in {self}");
        }
    }

    #[track_caller]
    pub(crate) fn assert_silent_about(&self, part: &str) {
        assert!(!self.stderr.contains(part), "'{part}' in {self}");
    }

    #[track_caller]
    pub(crate) fn assert_killed_by(&self, signal: libc::c_int) {
        assert_eq!(self.status.signal(), Some(signal), "{self}");
    }

    #[track_caller]
    pub(crate) fn assert_exit(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{self}");
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ended { status, stdout, stderr } = self;
        write!(f, "a process that ended with {status}:\n{stdout}\n--- stderr:\n{stderr}")
    }
}

/// Waits for a process, and kills it if it hangs.
pub(crate) fn finish(command: &mut Command, patience: Duration) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // One that hangs does not outlive this process either.
    // SAFETY: the closure makes one system call, without pointers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let child = command.spawn().unwrap();
    let pid = child.id() as libc::pid_t;
    let (over, wait) = mpsc::channel::<()>();
    let killer = std::thread::spawn(move || {
        let hangs = wait.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout);
        if hangs {
            // SAFETY: a system call without pointers; the child is not reaped
            // before this thread is told.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        hangs
    });
    let output = child.wait_with_output().unwrap();
    drop(over);
    let ended = Ended::of(output);
    assert!(!killer.join().unwrap(), "hung, and was killed: {ended}");
    ended
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The command that runs one test of this program in a process of its own: the one
/// whose name ends so.
pub(crate) fn this_test(test: &str, case: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([test, "--nocapture", "--test-threads=1"]);
    child.env("HEIST_TEST_CHILD", test).env("HEIST_TEST_CASE", case);
    child.env_remove("HEISTDEBUG").env_remove("HEIST_MAX_PROCS").env("RUST_BACKTRACE", "0");
    child
}

/// In the process that [`this_test`] starts for this test: its case.
pub(crate) fn case_of(test: &str) -> Option<String> {
    if std::env::var("HEIST_TEST_CHILD").as_deref() != Ok(test) {
        return None;
    }
    // No core files: these processes are meant to crash.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    Some(std::env::var("HEIST_TEST_CASE").unwrap())
}

/// Runs a case of a test in a process of its own.
pub(crate) fn child(test: &str, case: &str) -> Ended {
    finish(&mut this_test(test, case), PATIENCE)
}

/// An example of this package, which cargo builds along with its tests.
pub(crate) fn example(name: &str) -> Command {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples");
    path.push(name);
    assert!(
        path.exists(),
        "{} is not there: `cargo test` builds it, `cargo test --test faults` alone does not \
         (cargo build -p heist --examples)",
        path.display()
    );
    let mut command = Command::new(path);
    command.env_remove("HEISTDEBUG").env_remove("HEIST_MAX_PROCS").env("RUST_BACKTRACE", "0");
    command
}
