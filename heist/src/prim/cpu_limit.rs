//! How many CPUs this process may use: those that it may run on, and what its
//! cgroups grant it.
//!
//! The rule is Go's (1.25): as many Ps as CPUs in the thread's mask, but no more than
//! the tightest quota of the process's cgroups, rounded up; and because of a quota
//! never fewer than two, since on one P whoever computes delays everybody. std, whose
//! answer is [`available_parallelism`](std::thread::available_parallelism), rounds
//! down and goes down to one.
//!
//! A quota belongs to a cgroup and to all above it. Version 2 keeps it in `cpu.max`
//! ("max 100000", or "150000 100000": microseconds in each period), version 1 in two
//! files. Where they are, `/proc/self/mountinfo` and `/proc/self/cgroup` tell.

use super::thread;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the limits of this process are to be read.
#[derive(Debug)]
pub(crate) struct CpuLimit {
    /// Directories of its cgroups, its own first; none if there are no limits.
    cgroups: Vec<PathBuf>,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl CpuLimit {
    /// Finds the cgroups of this process. A process that is moved to others
    /// keeps those: look again for them, if that matters.
    pub(crate) fn find() -> CpuLimit {
        CpuLimit::find_under(Path::new("/"))
    }

    /// How many Ps there should be now. A few short reads of files: for a look now
    /// and then.
    pub(crate) fn procs(&self) -> usize {
        rule(thread::affinity(), self.tightest())
    }

    fn find_under(root: &Path) -> CpuLimit {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (mounts, own) = (read("proc/self/mountinfo"), read("proc/self/cgroup"));
        // A system may have both; then the controller of CPU time is where version 1
        // has one.
        for version in [Version::One, Version::Two] {
            if let Some(cgroups) = find_version(root, version, &mounts, &own) {
                return CpuLimit { cgroups, version };
            }
        }
        CpuLimit { cgroups: Vec::new(), version: Version::Two }
    }

    /// The tightest of all quotas, in CPUs.
    fn tightest(&self) -> Option<f64> {
        let quotas = self.cgroups.iter().filter_map(|cgroup| quota(cgroup, self.version));
        quotas.min_by(f64::total_cmp)
    }
}

/// The number of Ps for so many CPUs and a quota.
fn rule(cpus: usize, quota: Option<f64>) -> usize {
    let most = quota.map_or(usize::MAX, |quota| (quota.ceil() as usize).max(2));
    cpus.min(most).max(1)
}

/// The cgroup of this process and those above it, up to where they are mounted.
fn find_version(root: &Path, version: Version, mounts: &str, own: &str) -> Option<Vec<PathBuf>> {
    let path = own.lines().find_map(|line| own_path(line, version))?;
    let (mount_root, mount_point) = mounts.lines().find_map(|line| mount(line, version))?;
    // What is mounted may itself be a cgroup, as in a container. One that is not
    // below it cannot be seen from here; then what is mounted must do.
    let below = Path::new(path).strip_prefix(&mount_root).unwrap_or(Path::new(""));
    let top = root.join(mount_point.trim_start_matches('/'));
    let below = below.strip_prefix("/").unwrap_or(below);
    Some(below.ancestors().map(|part| top.join(part)).collect())
}

/// The path in a line of `/proc/self/cgroup`, such as `0::/a` or `4:cpu,cpuacct:/a`.
fn own_path(line: &str, version: Version) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let fits = match version {
        Version::One => controllers.split(',').any(|controller| controller == "cpu"),
        Version::Two => number == "0" && controllers.is_empty(),
    };
    fits.then_some(path)
}

/// What is mounted, and where, in a line of `/proc/self/mountinfo`:
/// `36 35 98:0 /what /where rw,noatime master:1 - cgroup cgroup rw,cpu`.
fn mount(line: &str, version: Version) -> Option<(String, String)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut system = system.split(' ');
    let (kind, _source, options) = (system.next()?, system.next()?, system.next().unwrap_or(""));
    let fits = match version {
        Version::One => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
        Version::Two => kind == "cgroup2",
    };
    let mut mount = mount.split(' ').skip(3);
    let (what, place) = (mount.next()?, mount.next()?);
    fits.then(|| (unescape(what), unescape(place)))
}

/// Spaces and the like are written as `\040`.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The quota of a cgroup in CPUs; `None` if it has none, or does not say.
fn quota(cgroup: &Path, version: Version) -> Option<f64> {
    let read = |file: &str| fs::read_to_string(cgroup.join(file)).ok();
    let (quota, period) = match version {
        Version::One => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
        Version::Two => {
            let both = read("cpu.max")?;
            let (quota, period) = both.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
    };
    // "max" and -1 are no numbers of microseconds.
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
    Some(quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of some machine, removed at the end.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, files: &[(&str, &str)]) -> Machine {
            let root = std::env::temp_dir().join(format!("heist-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            let machine = Machine(root);
            files.iter().for_each(|(path, text)| machine.write(path, text));
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn tightest(&self) -> Option<f64> {
            CpuLimit::find_under(&self.0).tightest()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const V2: (&str, &str) = (
        "proc/self/mountinfo",
        "22 1 0:21 / /proc rw - proc proc rw\n\
         30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    );

    #[test]
    fn the_rule_is_go_s() {
        assert_eq!(rule(8, None), 8);
        assert_eq!(rule(8, Some(2.5)), 3, "rounded up");
        assert_eq!(rule(8, Some(0.1)), 2, "never fewer than two because of a quota");
        assert_eq!(rule(1, Some(4.0)), 1);
        assert_eq!(rule(4, Some(100.0)), 4);
    }

    #[test]
    fn version_two_the_tightest_counts() {
        let machine = Machine::new(
            "v2",
            &[
                V2,
                ("proc/self/cgroup", "0::/a.slice/b.service\n"),
                ("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a.slice/cpu.max", "350000 100000\n"),
            ],
        );
        let limit = CpuLimit::find_under(&machine.0);
        assert_eq!(limit.tightest(), Some(3.5));
        // It is followed while it changes.
        machine.write("sys/fs/cgroup/a.slice/b.service/cpu.max", "50000 100000\n");
        assert_eq!(limit.tightest(), Some(0.5));
        machine.write("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n");
        machine.write("sys/fs/cgroup/a.slice/cpu.max", "max 100000\n");
        assert_eq!(limit.tightest(), None);
    }

    #[test]
    fn the_number_of_ps_follows_the_quota() {
        let file = "sys/fs/cgroup/a/cpu.max";
        let machine = Machine::new("follow", &[V2, ("proc/self/cgroup", "0::/a\n")]);
        let limit = CpuLimit::find_under(&machine.0);
        for (text, procs) in [
            ("max 100000\n", 8),
            ("250000 100000\n", 3),
            ("1 100000\n", 2),
            ("\0\u{fffd} 100000\n", 8),
            ("99999999999999999999999 100000\n", 8),
            ("-5 100000\n", 8),
            ("0 100000\n", 2),
            ("500000 50000\n", 8),
            ("400000 100000\n", 4),
        ] {
            machine.write(file, text);
            assert_eq!(rule(8, limit.tightest()), procs, "{text:?}");
        }
        fs::remove_file(machine.0.join(file)).unwrap();
        assert_eq!(rule(8, limit.tightest()), 8, "it is gone");
    }

    #[test]
    fn version_one_and_both_together() {
        let machine = Machine::new(
            "v1",
            &[
                (
                    "proc/self/mountinfo",
                    "30 22 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                     31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     33 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
                ),
                ("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/jobs/7\n0::/other\n"),
                ("sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "400000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/unified/other/cpu.max", "100000 100000\n"),
            ],
        );
        assert_eq!(machine.tightest(), Some(4.0));
    }

    #[test]
    fn a_container_sees_its_own_cgroup_as_the_root() {
        let inside = [
            // Mounted from below the root; the process says where it is from there.
            ("/docker/17", "0::/docker/17/app\n", "sys/fs/my cgroup/app/cpu.max"),
            // Its path is not below what is mounted.
            ("/docker/17", "0::/../elsewhere\n", "sys/fs/my cgroup/cpu.max"),
            ("/", "0::/\n", "sys/fs/my cgroup/cpu.max"),
        ];
        for (i, (what, own, file)) in inside.into_iter().enumerate() {
            let mounts = format!("30 22 0:26 {what} /sys/fs/my\\040cgroup rw - cgroup2 none rw\n");
            let machine = Machine::new(
                &format!("container{i}"),
                &[
                    ("proc/self/mountinfo", &mounts),
                    ("proc/self/cgroup", own),
                    (file, "150000 100000\n"),
                ],
            );
            assert_eq!(machine.tightest(), Some(1.5), "{own}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_limit() {
        assert_eq!(Machine::new("none", &[]).tightest(), None);
        for text in ["", "max", "max 100000", "100000 0", "many 100000", "100000"] {
            let own = ("proc/self/cgroup", "0::/a\n");
            let machine = Machine::new("odd", &[V2, own, ("sys/fs/cgroup/a/cpu.max", text)]);
            assert_eq!(machine.tightest(), None, "{text}");
        }
        assert_eq!(unescape("a\\040b\\134c\\9"), "a b\\c\\9");
    }

    #[test]
    fn this_process_may_use_some() {
        let procs = CpuLimit::find().procs();
        assert!((1..=thread::affinity()).contains(&procs), "{procs}");
    }
}
