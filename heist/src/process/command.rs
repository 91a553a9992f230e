//! [`Command`].

use super::{Child, CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};
use crate::syscall;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// How to start a process: [`std::process::Command`] that makes a [`Child`] of heist.
///
/// ```
/// use heist::process::{Command, Stdio};
/// use std::io::{Read, Write};
///
/// # fn main() -> std::io::Result<()> {
/// heist::run(|| {
///     let mut child =
///         Command::new("tr").args(["a-z", "A-Z"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     child.stdin.take().unwrap().write_all(b"loud")?;
///     let mut text = String::new();
///     child.stdout.take().unwrap().read_to_string(&mut text)?;
///     assert_eq!(text, "LOUD");
///     assert!(child.wait()?.success());
///     Ok(())
/// })
/// # }
/// ```
pub struct Command {
    inner: std::process::Command,
    /// Whether standard input, output and error were set: `output` has other defaults
    /// than `spawn`, and std does not tell.
    set: [bool; 3],
}

impl Command {
    /// To start this program, with the environment and folder of this process.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command { inner: std::process::Command::new(program), set: [false; 3] }
    }

    /// One more argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg(arg);
        self
    }

    /// More arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// A variable of the environment.
    pub fn env<K, V>(&mut self, key: K, val: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.env(key, val);
        self
    }

    /// Variables of the environment.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(vars);
        self
    }

    /// Without this variable.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.inner.env_remove(key);
        self
    }

    /// Without any variables but those that are set afterwards.
    pub fn env_clear(&mut self) -> &mut Command {
        self.inner.env_clear();
        self
    }

    /// In this folder.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.inner.current_dir(dir);
        self
    }

    /// Where it reads from.
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.inner.stdin(cfg);
        self.set[0] = true;
        self
    }

    /// Where it writes to.
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.inner.stdout(cfg);
        self.set[1] = true;
        self
    }

    /// Where it reports errors to.
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.inner.stderr(cfg);
        self.set[2] = true;
        self
    }

    /// Starts the process; by default it has the standard streams of this one.
    pub fn spawn(&mut self) -> io::Result<Child> {
        // Returns when the child runs its program: that is read from a disk.
        Child::new(syscall(|| self.inner.spawn())?)
    }

    /// Starts the process, waits for its end and for all that it writes; by default it
    /// has nothing to read.
    pub fn output(&mut self) -> io::Result<Output> {
        let set = self.set;
        if !set[0] {
            self.inner.stdin(Stdio::null());
        }
        if !set[1] {
            self.inner.stdout(Stdio::piped());
        }
        if !set[2] {
            self.inner.stderr(Stdio::piped());
        }
        let child = self.spawn();
        // As if they had not been set.
        if !set[0] {
            self.inner.stdin(Stdio::inherit());
        }
        if !set[1] {
            self.inner.stdout(Stdio::inherit());
        }
        if !set[2] {
            self.inner.stderr(Stdio::inherit());
        }
        child?.wait_with_output()
    }

    /// Starts the process and waits for its end.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// The program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.inner.get_program()
    }

    /// Its arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.inner.get_args()
    }

    /// The variables that were set or removed.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// The folder, if one was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }

    /// As this user; see [`CommandExt::uid`].
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.inner.uid(id);
        self
    }

    /// In this group; see [`CommandExt::gid`].
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.inner.gid(id);
        self
    }

    /// In this group of processes, or in one of its own; see
    /// [`CommandExt::process_group`].
    pub fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.inner.process_group(pgroup);
        self
    }

    /// Under another name; see [`CommandExt::arg0`].
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg0(arg);
        self
    }

    /// Becomes the program: on success this process, with all its goroutines, is no
    /// more. See [`CommandExt::exec`].
    pub fn exec(&mut self) -> io::Error {
        self.inner.exec()
    }

    /// Runs `f` in the child before it becomes the program; see
    /// [`CommandExt::pre_exec`].
    ///
    /// # Safety
    ///
    /// As there: only what is async-signal-safe. The child has one thread and no
    /// runtime: nothing of heist may be called.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller promises the same.
        unsafe { self.inner.pre_exec(f) };
        self
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
