//! What the kernel knows about memory and the machine.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io, process};

/// How many CPUs this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name of the CPU, the number of CPUs and the kernel.
pub(crate) fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown CPU", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} × {model}, Linux {}", cpus(), kernel.trim())
}

/// Lets the calling thread, and those that it will start, use that many CPUs.
///
/// # Panics
///
/// If the kernel does not allow it.
pub(crate) fn use_cpus(n: usize) {
    let allowed = sched_getaffinity(None).expect("a thread may ask for its CPUs");
    let mut fewer = CpuSet::new();
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    cpus.take(n).for_each(|cpu| fewer.set(cpu));
    sched_setaffinity(None, &fewer).expect("a thread may restrict itself");
}

/// The calling thread's sleeps end when they should, and not when it suits the kernel.
pub(crate) fn sleep_precisely() {
    // If the kernel refuses, they are less precise.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Lets this process have as many descriptors as it may.
pub(crate) fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    // If the kernel refuses, those that it has must do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

/// Has the host of a virtual machine give it this much memory, as far as half of what is free
/// goes. Most do so when a page is first touched, whoever in the machine does that, and it may
/// take ten times as long as the kernel's own part.
pub(crate) fn touch_memory(bytes: u64) {
    let bytes = bytes.min(available() / 2);
    std::hint::black_box(vec![1u8; bytes as usize]);
}

/// CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// CPU time of this thread.
pub(crate) fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How often the threads of this process have gone to sleep so far.
pub(crate) fn sleeps() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let sleeps = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    };
    tasks.filter_map(sleeps).sum()
}

/// Memory of this process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident.
    pub(crate) resident: u64,
    /// Page tables, which the resident set does not contain.
    pub(crate) tables: u64,
}

impl Memory {
    /// Now.
    ///
    /// # Panics
    ///
    /// If there is no `/proc`.
    pub(crate) fn now() -> Memory {
        let statm = fs::read_to_string("/proc/self/statm").expect("/proc/self/statm");
        let pages: u64 = statm
            .split_whitespace()
            .nth(1)
            .and_then(|pages| pages.parse().ok())
            .expect("the second number of statm is that of resident pages");
        let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
        Memory { resident: pages * page_size(), tables: kib(&status, "VmPTE:") }
    }

    /// How much more this is than it was before; bytes that went away count as
    /// none. As a sample: resident, tables.
    pub(crate) fn since(self, before: Memory) -> Vec<u64> {
        vec![
            self.resident.saturating_sub(before.resident),
            self.tables.saturating_sub(before.tables),
        ]
    }
}

/// Memory of the machine that is free or easily freed, in bytes.
pub(crate) fn available() -> u64 {
    kib(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable:")
}

/// How many memory mappings a process may have.
pub(crate) fn max_mappings() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(65_530)
}

/// A field of a file of `Name:  123 kB` lines, in bytes.
fn kib(text: &str, field: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    let number = value.and_then(|value| value.split_whitespace().next());
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Bytes of a page, as the kernel says in the auxiliary vector.
fn page_size() -> u64 {
    const PAGESZ: u64 = 6;
    let vector = fs::read("/proc/self/auxv").unwrap_or_default();
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("chunks of eight")))
        .collect();
    words.chunks_exact(2).find(|pair| pair[0] == PAGESZ).map_or(4096, |pair| pair[1])
}

/// A directory of our own, gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// # Errors
    ///
    /// If it cannot be made, or something of its name is there.
    pub(crate) fn new(what: &str) -> io::Result<Scratch> {
        let path = env::temp_dir().join(format!("heist-bench-{what}-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is small and in a directory for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command on `PATH`.
pub(crate) fn on_path(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn fields_are_read() {
        let text = "Name:\tx\nVmPTE:\t     124 kB\n";
        assert_eq!(kib(text, "VmPTE:"), 124 << 10);
        assert_eq!(kib(text, "VmSwap:"), 0);
    }

    #[test]
    fn memory_grows_by_what_is_touched() {
        let before = Memory::now();
        let block = vec![1u8; 32 << 20];
        let grown = Memory::now().since(before);
        assert!(grown[0] >= 30 << 20, "{grown:?}");
        assert_eq!(std::hint::black_box(block)[0], 1);
    }

    #[test]
    fn a_thread_restricts_itself_and_no_other() {
        let before = cpus();
        let inside = std::thread::spawn(|| {
            use_cpus(1);
            (cpus(), std::thread::spawn(cpus).join().unwrap())
        });
        assert_eq!(inside.join().unwrap(), (1, 1));
        assert_eq!(cpus(), before);
    }

    #[test]
    fn computing_takes_cpu_time() {
        let (begin, before) = (Instant::now(), cpu_time());
        while cpu_time() - before < Duration::from_millis(2) {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn the_page_size_is_a_power_of_two() {
        assert!(page_size().is_power_of_two() && page_size() >= 4096);
    }
}
