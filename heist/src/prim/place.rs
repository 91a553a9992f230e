//! Where a thread runs: which last-level cache its CPU has, and which node's memory is
//! near.
//!
//! Linux says so in files. `cpuN/cache/indexK` has a `level` and a `shared_cpu_list`
//! ("0-7,64-71"): the CPUs with whom this one shares it; `node/nodeM/cpulist` has the CPUs
//! of a node. A virtual machine may have none of them, or files that make no sense: then
//! all CPUs are at one place, and nothing is near or far.

use super::thread;
use std::sync::OnceLock;

/// A last-level cache and its node, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cache: u16,
    pub(crate) node: u16,
}

/// The places of a machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Of each CPU.
    cpus: Box<[Place]>,
    caches: usize,
    nodes: usize,
}

impl Shape {
    /// This machine. Read once: what is plugged in later is somewhere.
    pub(crate) fn of_machine() -> &'static Shape {
        static SHAPE: OnceLock<Shape> = OnceLock::new();
        SHAPE.get_or_init(|| Shape::new(&machine()))
    }

    /// From what names the cache and the node of each CPU. A cache belongs to one node:
    /// if they contradict each other, both count.
    pub(crate) fn new(cpus: &[(usize, usize)]) -> Shape {
        let mut nodes: Vec<usize> = Vec::new();
        let mut caches: Vec<(usize, usize)> = Vec::new();
        let cpus = cpus
            .iter()
            .map(|&(cache, node)| Place {
                cache: number(&mut caches, (cache, node)),
                node: number(&mut nodes, node),
            })
            .collect();
        Shape { cpus, caches: caches.len(), nodes: nodes.len() }
    }

    /// How many last-level caches there are.
    pub(crate) fn caches(&self) -> usize {
        self.caches
    }

    /// How many nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The place of the calling thread, now. It may be elsewhere a moment later.
    #[inline]
    pub(crate) fn here(&self) -> Place {
        let place = thread::cpu().and_then(|cpu| self.cpus.get(cpu));
        place.copied().unwrap_or(Place { cache: 0, node: 0 })
    }
}

/// The number of a name, in the order in which they come.
fn number<T: PartialEq>(names: &mut Vec<T>, name: T) -> u16 {
    let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    });
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// The cache and the node of each core.
#[cfg(sim)]
fn machine() -> Vec<(usize, usize)> {
    thread::cores()
}

#[cfg(not(sim))]
use files::machine;

/// What Linux tells.
#[cfg(not(sim))]
mod files {
    use std::fs;
    use std::path::Path;

    /// More CPUs than Linux can have; a number beyond that is a mistake.
    const MOST: usize = 1 << 16;

    pub(super) fn machine() -> Vec<(usize, usize)> {
        machine_under(Path::new("/sys/devices/system"))
    }

    /// The cache and the node of each CPU, each by the number of its first CPU.
    pub(super) fn machine_under(root: &Path) -> Vec<(usize, usize)> {
        let nodes: Vec<Vec<usize>> = numbered(&root.join("node"), "node")
            .into_iter()
            .filter_map(|node| list(&read(&root.join(format!("node/node{node}/cpulist")))?))
            .collect();
        let cpus = numbered(&root.join("cpu"), "cpu");
        let Some(last) = cpus.iter().max() else { return Vec::new() };
        let mut found = vec![None; last + 1];
        for cpu in cpus {
            let node = nodes.iter().find(|node| node.contains(&cpu));
            let node = node.and_then(|node| node.iter().min()).copied().unwrap_or(0);
            // Without a cache in sight, those of a node share one.
            let cache = last_cache(&root.join(format!("cpu/cpu{cpu}/cache")), cpu);
            found[cpu] = Some((cache.unwrap_or(node), node));
        }
        // Nobody runs on those that are missing: no place of their own.
        let some = found.iter().flatten().next().copied().unwrap_or((0, 0));
        found.into_iter().map(|place| place.unwrap_or(some)).collect()
    }

    /// The first CPU of those that share the last-level cache of one.
    fn last_cache(caches: &Path, cpu: usize) -> Option<usize> {
        let last = numbered(caches, "index")
            .into_iter()
            .map(|index| caches.join(format!("index{index}")))
            .filter_map(|cache| {
                let level: u32 = read(&cache.join("level"))?.trim().parse().ok()?;
                let shared = list(&read(&cache.join("shared_cpu_list"))?)?;
                // The first level is one core's own.
                (level > 1 && shared.contains(&cpu)).then_some((level, shared))
            })
            .max_by_key(|(level, _)| *level);
        last.and_then(|(_, shared)| shared.into_iter().min())
    }

    /// The numbers of `cpu0`, `cpu1` and so on in a directory.
    fn numbered(directory: &Path, prefix: &str) -> Vec<usize> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
        entries
            .filter_map(|entry| number(entry.file_name().to_str()?))
            .filter(|n| *n < MOST)
            .collect()
    }

    fn read(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    /// Numbers such as "0-3,8,10-11"; `None` if that makes no sense.
    pub(super) fn list(text: &str) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= MOST {
                return None;
            }
            all.extend(first..=last);
        }
        Some(all)
    }
}

#[cfg(all(test, not(sim)))]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A directory with the files of some machine, removed at the end.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Machine {
            let root =
                std::env::temp_dir().join(format!("heist-place-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            Machine(root)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// A CPU with two levels of its own, and a third that it shares.
        fn cpu(&self, cpu: usize, shared: &str) {
            let own = cpu.to_string();
            let caches = [("0", "1", own.as_str()), ("1", "2", &own), ("2", "3", shared)];
            for (index, level, list) in caches {
                let cache = format!("cpu/cpu{cpu}/cache/index{index}");
                self.write(&format!("{cache}/level"), &format!("{level}\n"));
                self.write(&format!("{cache}/shared_cpu_list"), &format!("{list}\n"));
            }
        }

        fn shape(&self) -> Shape {
            Shape::new(&files::machine_under(&self.0))
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn lists_are_read_and_garbage_is_none() {
        assert_eq!(files::list("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(files::list("\n"), Some(vec![]), "a node with memory only");
        for garbage in ["x", "3-1", "1-", "-1", "0-99999999", "1 2", "18446744073709551616"] {
            assert_eq!(files::list(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn two_nodes_of_two_caches() {
        let machine = Machine::new("numa");
        // Hyperthreads have numbers far away.
        for (first, list) in [(0, "0-1,8-9"), (2, "2-3,10-11"), (4, "4-5,12-13"), (6, "6-7,14-15")]
        {
            [0, 1, 8, 9].iter().for_each(|cpu| machine.cpu(first + cpu, list));
        }
        machine.write("node/node0/cpulist", "0-3,8-11\n");
        machine.write("node/node1/cpulist", "4-7,12-15\n");
        machine.write("node/node2/cpulist", "\n");
        machine.write("cpu/cpufreq/policy0/scaling_driver", "none\n");
        let shape = machine.shape();
        assert_eq!((shape.caches(), shape.nodes()), (4, 2));
        let place = |cpu: usize| shape.cpus[cpu];
        assert_eq!(place(0), place(9));
        assert_eq!(place(2), place(11));
        assert_eq!(place(0).node, place(2).node);
        assert_ne!(place(0).cache, place(2).cache);
        assert_ne!(place(0).node, place(4).node);
        assert_eq!(place(5), place(12));
    }

    #[test]
    fn nodes_without_caches_and_caches_without_nodes() {
        let machine = Machine::new("nodes");
        (0..4).for_each(|cpu| machine.write(&format!("cpu/cpu{cpu}/online"), "1\n"));
        machine.write("node/node0/cpulist", "0-1\n");
        machine.write("node/node1/cpulist", "2-3\n");
        let shape = machine.shape();
        assert_eq!((shape.caches(), shape.nodes()), (2, 2));
        let machine = Machine::new("caches");
        for (cpu, list) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            machine.cpu(cpu, list);
        }
        let shape = machine.shape();
        assert_eq!((shape.caches(), shape.nodes()), (2, 1));
        assert_eq!(shape.cpus[0], shape.cpus[2]);
    }

    #[test]
    fn what_is_missing_or_makes_no_sense_is_one_place() {
        let machine = Machine::new("nothing");
        assert_eq!(machine.shape().caches(), 0);
        for cpu in 0..3 {
            machine.cpu(cpu, "garbage");
            machine.write(&format!("cpu/cpu{cpu}/cache/index2/level"), "high\n");
            // A cache that this CPU is not among the users of.
            machine.write(&format!("cpu/cpu{cpu}/cache/index1/shared_cpu_list"), "77\n");
        }
        machine.write("node/node0/cpulist", "0-2,\u{fffd}\n");
        machine.write("cpu/cpu99999999999/online", "1\n");
        let shape = machine.shape();
        assert_eq!((shape.caches(), shape.nodes(), shape.cpus.len()), (1, 1, 3));
    }

    #[test]
    fn this_machine_has_a_place_for_this_thread() {
        let shape = Shape::of_machine();
        let here = shape.here();
        assert!(usize::from(here.cache) < shape.caches().max(1));
        assert!(usize::from(here.node) < shape.nodes().max(1));
    }
}
