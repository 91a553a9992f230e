//! A thread as the kernel knows it: has it run, does it block?

use std::io::Write;
use std::mem::MaybeUninit;

/// How soon a thread wants a CPU when it wakes up, and how long it wants to keep one. It
/// gets no more of it by either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Soon, and not for long.
    Prompt,
    Usual,
}

/// The kernel's number of a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OsThread(u32);

impl OsThread {
    /// The calling thread.
    pub(crate) fn current() -> OsThread {
        // SAFETY: takes nothing and always succeeds.
        OsThread(unsafe { libc::gettid() } as u32)
    }

    pub(crate) fn id(self) -> u32 {
        self.0
    }

    pub(crate) fn from_id(id: u32) -> OsThread {
        OsThread(id)
    }

    /// How long it has run on a CPU, in nanoseconds; `None` once it has ended.
    /// About 0.7 µs.
    pub(crate) fn cpu_time(self) -> Option<u64> {
        // The clock of a thread is spelled so (clock_getcpuclockid(3) does the same
        // for a process, and the C library's function for threads wants a
        // `pthread_t` that is known to live).
        const THREAD: libc::clockid_t = 4;
        const SCHEDULED: libc::clockid_t = 2;
        let clock = !(self.0 as libc::clockid_t) << 3 | THREAD | SCHEDULED;
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the pointer is to a live local; an unknown clock is an error.
        unsafe {
            if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
                return None;
            }
            let time = time.assume_init();
            Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
        }
    }

    /// How long it has run on a CPU and how long it has waited for one, able to run, in
    /// nanoseconds; `None` once it has ended, or if the kernel does not count that. Some
    /// 10 µs.
    pub(crate) fn ran_and_waited(self) -> Option<(u64, u64)> {
        let mut text = [0u8; 64];
        let n = self.read("schedstat", &mut text)?;
        let mut numbers = str::from_utf8(&text[..n]).ok()?.split(' ').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Whether it sleeps in the kernel: it neither runs nor waits for a CPU. Some
    /// 10 µs; allocates nothing.
    pub(crate) fn is_blocked(self) -> bool {
        // Number, name in parentheses, state. The name may hold anything.
        let mut text = [0u8; 128];
        let state = self.read("stat", &mut text).and_then(|n| {
            let close = text[..n].iter().rposition(|c| *c == b')')?;
            text.get(close + 2).copied()
        });
        matches!(state, Some(b'S' | b'D'))
    }

    /// Sets its pace, if the kernel knows of that (Linux 6.12). The threads and processes
    /// that it starts inherit it. Two system calls.
    pub(crate) fn set_pace(self, pace: Pace) {
        /// The kernel's `struct sched_attr`, in its first version.
        #[repr(C)]
        #[derive(Default)]
        struct Attributes {
            size: u32,
            policy: u32,
            flags: u64,
            nice: i32,
            priority: u32,
            /// Of a thread that is like others: the slice that it asks for. With 0 it
            /// leaves that to the kernel.
            runtime: u64,
            deadline: u64,
            period: u64,
        }
        const SIZE: u32 = size_of::<Attributes>() as u32;
        /// The policy stays what it is, also if somebody changes it meanwhile.
        const KEEP_POLICY: u64 = 8;
        /// The least that the kernel gives.
        const SHORT: u64 = 100_000;
        let mut its = Attributes::default();
        // SAFETY: the kernel writes to a live local of the size given.
        let rc = unsafe { libc::syscall(libc::SYS_sched_getattr, self.0, &raw mut its, SIZE, 0) };
        // A policy that is not everybody's is the user's, who knows better; and a kernel
        // that does not know of slices says nothing of them.
        if rc != 0 || its.policy != libc::SCHED_OTHER as u32 || its.runtime == 0 {
            return;
        }
        its.runtime = match pace {
            Pace::Prompt => SHORT,
            // A slice that is not ours is the user's.
            Pace::Usual if its.runtime != SHORT => return,
            Pace::Usual => 0,
        };
        its.flags |= KEEP_POLICY;
        // SAFETY: the kernel reads a live local of the size in it. If it refuses, the
        // thread stays as it was.
        unsafe { libc::syscall(libc::SYS_sched_setattr, self.0, &raw const its, 0) };
    }

    /// On which CPUs it may run; `None` once it has ended.
    pub(crate) fn mask(self) -> Option<Mask> {
        let mut mask = Mask([0; 128]);
        let (id, size) = (self.0 as libc::pid_t, size_of_val(&mask.0));
        // SAFETY: the kernel writes at most `size` bytes to a live local.
        let rc = unsafe { libc::sched_getaffinity(id, size, mask.0.as_mut_ptr().cast()) };
        (rc == 0).then_some(mask)
    }

    /// Sets it. The kernel leaves out what the process may not use, and refuses a mask of
    /// which nothing is left.
    pub(crate) fn set_mask(self, mask: &Mask) -> bool {
        let (id, size) = (self.0 as libc::pid_t, size_of_val(&mask.0));
        // SAFETY: the kernel reads `size` bytes of a live value.
        unsafe { libc::sched_setaffinity(id, size, mask.0.as_ptr().cast()) == 0 }
    }

    /// Takes a CPU out of its mask, if that has as many CPUs as are said, and another one.
    pub(crate) fn leave_out(self, cpu: usize, at_least: usize) -> bool {
        let Some(mut mask) = self.mask() else { return false };
        let cpus = mask.count();
        cpus > 1 && cpus >= at_least && mask.set(cpu, false) && self.set_mask(&mask)
    }

    /// Puts a CPU into its mask again. If the kernel has no memory for that, it does
    /// without.
    pub(crate) fn let_in(self, cpu: usize) {
        if let Some(mut mask) = self.mask()
            && mask.set(cpu, true)
        {
            let _ = self.set_mask(&mask);
        }
    }

    /// Sends it a signal with a value, that its handler can tell from others by.
    /// False if there is no such thread, or too many signals are on their way.
    pub(crate) fn interrupt(self, signal: i32, value: u64) -> bool {
        /// The kernel's `siginfo_t` for a queued signal.
        #[repr(C)]
        struct Info {
            signal: i32,
            errno: i32,
            code: i32,
            padding: i32,
            pid: i32,
            uid: u32,
            value: u64,
            rest: [u64; 12],
        }
        const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());
        let pid = std::process::id() as i32;
        let code = libc::SI_QUEUE;
        // SAFETY: takes nothing and always succeeds.
        let uid = unsafe { libc::getuid() };
        let info = Info { signal, errno: 0, code, padding: 0, pid, uid, value, rest: [0; 12] };
        let tid = self.0 as i32;
        // SAFETY: the kernel reads a `siginfo_t` from a live local of its size.
        unsafe {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, &raw const info) == 0
        }
    }

    /// Reads what the kernel says of it.
    fn read(self, name: &str, text: &mut [u8]) -> Option<usize> {
        let mut path = [0u8; 64];
        // The rest of the buffer is zero, which ends the string.
        write!(&mut path[..63], "/proc/self/task/{}/{name}", self.0).ok()?;
        // SAFETY: the path is terminated, and the buffer is live and as long as said.
        unsafe {
            let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
            if file < 0 {
                return None;
            }
            let n = libc::read(file, text.as_mut_ptr().cast(), text.len());
            libc::close(file);
            usize::try_from(n).ok()
        }
    }
}

/// On which CPUs a thread may run: a bit for each, and room for more than Linux knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask([u64; 128]);

impl Mask {
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether that changes it.
    fn set(&mut self, cpu: usize, to: bool) -> bool {
        let Some(word) = self.0.get_mut(cpu / 64) else { return false };
        let before = *word;
        let bit = 1 << (cpu % 64);
        *word = if to { before | bit } else { before & !bit };
        *word != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_sleeping_thread_is_told_from_a_running_one() {
        let me = OsThread::current();
        assert!(!me.is_blocked());
        let before = me.cpu_time().unwrap();
        while me.cpu_time().unwrap() == before {}
        // Kernels that do not count it have no such file.
        if let Some((ran, _)) = me.ran_and_waited() {
            assert!(ran > 0);
        }
        let (send, receive) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            send.send(OsThread::current()).unwrap();
            let _ = wait.recv();
        });
        let other = receive.recv().unwrap();
        while !other.is_blocked() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(other.cpu_time(), other.cpu_time());
        drop(end);
        sleeper.join().unwrap();
        while other.cpu_time().is_some() {
            std::thread::sleep(Duration::from_millis(1)); // the kernel buries it
        }
        assert!(!other.is_blocked());
        assert_eq!(other.ran_and_waited(), None);
    }

    #[test]
    fn a_cpu_is_left_out_and_let_in_again() {
        let me = OsThread::current();
        let all = me.mask().unwrap();
        let cpus = all.count();
        let first = (0..).find(|cpu| all.0[cpu / 64] >> (cpu % 64) & 1 != 0).unwrap();
        assert!(!me.leave_out(first, cpus + 1), "too few");
        assert_eq!(me.leave_out(first, cpus), cpus > 1, "none would be left");
        assert_eq!(me.mask().unwrap().count(), (cpus - 1).max(1));
        me.let_in(first);
        assert_eq!(me.mask().unwrap(), all);
    }
}
