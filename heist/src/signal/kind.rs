//! [`Signal`].

use std::fmt;

/// A signal, by its number: `Signal::INT` is `SIGINT`.
///
/// ```
/// use heist::signal::Signal;
///
/// assert_eq!(Signal::INT.to_string(), "SIGINT");
/// assert_eq!(Signal::from_raw(15), Signal::TERM);
/// assert_eq!(Signal::from_raw(40).to_string(), "signal 40");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

impl Signal {
    /// The signal with a number; real-time signals have no names.
    #[must_use]
    pub const fn from_raw(number: i32) -> Signal {
        Signal(number)
    }

    /// Its number.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

macro_rules! signals {
    ($($name:ident $full:ident $text:literal)*) => {
        impl Signal {
            $(
                #[doc = $text]
                pub const $name: Signal = Signal(libc::$full);
            )*

            /// `"SIGINT"`, if it has a name.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Signal::$name => Some(stringify!($full)),)*
                    _ => None,
                }
            }
        }
    };
}

signals! {
    HUP SIGHUP "The terminal is gone; by custom: read the configuration again."
    INT SIGINT "Ctrl-C."
    QUIT SIGQUIT "Ctrl-\\\\: the runtime prints all goroutines and ends the program."
    ILL SIGILL "An instruction that there is not."
    TRAP SIGTRAP "A breakpoint."
    ABRT SIGABRT "`abort` was called."
    BUS SIGBUS "An access to memory that is not there."
    FPE SIGFPE "An arithmetic fault."
    KILL SIGKILL "Ends a process, whatever it says."
    USR1 SIGUSR1 "For programs to define."
    SEGV SIGSEGV "An access to memory that is not allowed."
    USR2 SIGUSR2 "For programs to define."
    PIPE SIGPIPE "A write that nobody can read. Rust ignores it, and the write fails."
    ALRM SIGALRM "The alarm clock of the process."
    TERM SIGTERM "Asks a process to end."
    STKFLT SIGSTKFLT "Not used."
    CHLD SIGCHLD "A child process has ended or stopped."
    CONT SIGCONT "Goes on after a stop."
    STOP SIGSTOP "Stops a process, whatever it says."
    TSTP SIGTSTP "Ctrl-Z."
    TTIN SIGTTIN "A background process reads from the terminal."
    TTOU SIGTTOU "A background process writes to the terminal."
    URG SIGURG "Urgent data of a socket. The scheduler preempts with it."
    XCPU SIGXCPU "The limit of CPU time."
    XFSZ SIGXFSZ "The limit of file size."
    VTALRM SIGVTALRM "The alarm clock that runs while the process does."
    PROF SIGPROF "The alarm clock of profilers."
    WINCH SIGWINCH "The terminal has another size."
    IO SIGIO "A descriptor is ready."
    PWR SIGPWR "The power fails."
    SYS SIGSYS "A system call that there is not."
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
