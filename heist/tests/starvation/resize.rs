//! Another number of Ps while goroutines run, and stopping the world.

use crate::common::{in_a_process, runtime, stderr, until, watched};
use heist::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use heist::{chan, go, runtime as rt, thread, time};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn up_and_down() {
    watched(|| {
        let runtime = runtime(2);
        runtime.run(|| {
            assert_eq!(rt::set_max_procs(5), 2);
            assert_eq!(rt::max_procs(), 5);
            assert_eq!(rt::set_max_procs(1), 5);
            assert_eq!(rt::set_max_procs(1), 1, "the same again is fine");
            assert_eq!(go(rt::max_procs).join().unwrap(), 1);
        });
        assert_eq!(runtime.set_max_procs(3), 1, "from a plain thread");
        assert_eq!(runtime.max_procs(), 3);
    });
}

#[test]
#[should_panic(expected = "there must be at least 1 P")]
fn zero_is_refused() {
    rt::set_max_procs(0);
}

#[test]
#[should_panic(expected = "at most 1024")]
fn too_many_are_refused() {
    rt::set_max_procs(1025);
}

/// What was queued, what sleeps and what is counted outlives the P that had it.
#[test]
fn nothing_is_lost_when_ps_go() {
    watched(|| {
        runtime(8).run(|| {
            let (send, receive) = chan::unbounded();
            for i in 0..2_000u32 {
                let send = send.clone();
                drop(go(move || {
                    match i % 4 {
                        0 => thread::yield_now(),
                        1 => time::sleep(Duration::from_millis(u64::from(i % 20))),
                        _ => {}
                    }
                    send.send(i).unwrap();
                }));
                if i % 100 == 0 {
                    rt::set_max_procs(1 + (i as usize / 100) % 8);
                }
            }
            drop(send);
            let mut all: Vec<u32> = receive.iter().collect();
            all.sort_unstable();
            assert_eq!(all, (0..2_000).collect::<Vec<_>>());
            rt::set_max_procs(1);
            // Those that ended are counted where they ended.
            while rt::num_goroutines() > 1 {
                thread::yield_now();
            }
        });
    });
}

/// More Ps than before really run goroutines: as many wait for each other, busily.
#[test]
fn new_ps_run_goroutines() {
    watched(|| {
        runtime(1).run(|| {
            rt::set_max_procs(4);
            let here = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..4)
                .map(|_| {
                    let here = here.clone();
                    go(move || {
                        here.fetch_add(1, Ordering::SeqCst);
                        heist::no_preempt(|| while here.load(Ordering::SeqCst) < 4 {});
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
        });
    });
}

/// They give goroutines stacks of the runtime's size: this overflows others.
#[test]
fn new_ps_have_stacks_of_the_runtimes_size() {
    #[inline(never)]
    fn deep(levels: usize) -> usize {
        let mut here = std::hint::black_box([levels; 128]);
        here[levels % 128] += if levels == 0 { 0 } else { deep(levels - 1) };
        std::hint::black_box(here[levels % 128])
    }
    watched(|| {
        let builder = heist::Builder::new().max_procs(1).stack_size(16 << 20);
        builder.build().unwrap().run(|| {
            rt::set_max_procs(4);
            let here = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..4)
                .map(|_| {
                    let here = here.clone();
                    go(move || {
                        here.fetch_add(1, Ordering::SeqCst);
                        // One on each P.
                        heist::no_preempt(|| while here.load(Ordering::SeqCst) < 4 {});
                        deep(4_000)
                    })
                })
                .collect();
            all.into_iter().for_each(|g| assert!(g.join().unwrap() > 0));
        });
    });
}

#[test]
fn a_thousand_resizes_against_a_thousand_stops_and_a_respawner() {
    fn respawn(stop: Arc<AtomicBool>, lives: Arc<AtomicUsize>, ended: chan::Sender<()>) {
        lives.fetch_add(1, Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            ended.send(()).unwrap();
        } else {
            drop(go(move || respawn(stop, lives, ended)));
        }
    }
    watched(|| {
        runtime(4).run(|| {
            let goroutines = rt::num_goroutines();
            let (stop, lives) = (Arc::new(AtomicBool::new(false)), Arc::default());
            let (send, ended) = chan::bounded(1);
            respawn(stop.clone(), Arc::clone(&lives), send);
            let respawns = lives.clone();
            let resizes = go(move || {
                for i in 0..1_000 {
                    let before = respawns.load(Ordering::SeqCst);
                    rt::set_max_procs(1 + i % 4);
                    if i % 100 == 0 {
                        // It goes on, whatever becomes of the P that it was on.
                        until(|| respawns.load(Ordering::SeqCst) > before);
                    }
                }
            });
            let stops = go(|| {
                for _ in 0..1_000 {
                    rt::set_max_procs(rt::max_procs());
                    rt::release_memory(); // on each P in turn, while the others go on
                }
            });
            resizes.join().unwrap();
            stops.join().unwrap();
            // As many as the last one said, whoever that was.
            let procs = rt::max_procs();
            assert!((1..=4).contains(&procs), "{procs}");
            assert_eq!(rt::set_max_procs(3), procs);
            assert_eq!(rt::max_procs(), 3);
            let before = lives.load(Ordering::SeqCst);
            until(|| lives.load(Ordering::SeqCst) > before + 100);
            stop.store(true, Ordering::SeqCst);
            ended.recv().unwrap();
            until(|| rt::num_goroutines() == goroutines);
        });
    });
}

/// A goroutine in user code does not delay it, nor do those that block.
#[test]
fn the_world_stops_beside_hogs_and_blocked_threads() {
    watched(|| {
        runtime(3).run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let flag = stop.clone();
            let hog = go(move || while !flag.load(Ordering::Relaxed) {});
            let (reader, writer) = std::io::pipe().unwrap();
            let reader = go(move || std::io::Read::read(&mut { reader }, &mut [0]).unwrap());
            for procs in [1, 3, 2, 8, 1] {
                rt::set_max_procs(procs);
                time::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            drop(writer);
            hog.join().unwrap();
            assert_eq!(reader.join().unwrap(), 0);
        });
    });
}

#[test]
fn a_runtime_may_end_while_it_is_resized() {
    watched(|| {
        for _ in 0..20 {
            let runtime = runtime(2);
            runtime.run(|| {
                drop(go(|| {
                    for i in 0..1_000 {
                        rt::set_max_procs(1 + i % 5);
                    }
                }));
                thread::yield_now();
            });
            drop(runtime);
        }
    });
}

/// The number of Ps follows what the kernel allows, until somebody sets it.
#[test]
fn the_cpu_limit_is_followed_until_set_by_hand() {
    use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}", stderr(&output));
        return;
    }
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let sysmon = || {
        let named = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.contains("-sysmon"))
        };
        // It has its name soon after it was started.
        loop {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            if let Some(path) = tasks.map(|task| task.unwrap().path()).find(named) {
                return Pid::from_raw(path.file_name().unwrap().to_str().unwrap().parse().unwrap());
            }
            thread::yield_now();
        }
    };
    let allow = |n: usize| {
        let mut set = CpuSet::new();
        cpus.iter().take(n).for_each(|cpu| set.set(*cpu));
        sched_setaffinity(sysmon(), &set).unwrap();
    };
    watched(|| {
        heist::run(|| {
            assert_eq!(rt::max_procs(), cpus.len());
            allow(1);
            while rt::max_procs() != 1 {
                thread::yield_now();
            }
            allow(cpus.len());
            while rt::max_procs() != cpus.len() {
                thread::yield_now();
            }
            rt::set_max_procs(cpus.len() + 1);
            allow(1);
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(2_500) {
                thread::yield_now();
            }
            assert_eq!(rt::max_procs(), cpus.len() + 1, "set by hand");
        });
    });
}
