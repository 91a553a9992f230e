//! Goroutines that are stopped while they hold what others need.

use super::common::{Hogs, watched};
use heist::{Builder, go, runtime, time};
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Some hogs, which are stopped again and again, and goroutines that want what the
/// hogs hold while they compute.
fn nobody_waits_for_good(hold: fn(&dyn Fn()), want: fn()) {
    watched(|| {
        for (procs, runners) in [(1, 0), (2, 1)] {
            let runtime = Builder::new().max_procs(procs).max_runners(runners).build().unwrap();
            runtime.run(|| {
                let hogs = Hogs::start(6, move || hold(&compute));
                let got = Arc::new(AtomicUsize::new(0));
                let wanting: Vec<_> = (0..4)
                    .map(|_| {
                        let got = got.clone();
                        go(move || {
                            for _ in 0..5 {
                                want();
                                got.fetch_add(1, Ordering::Relaxed);
                            }
                        })
                    })
                    .collect();
                while got.load(Ordering::Relaxed) < 20 || runtime::stats().freezes < 10 {
                    time::sleep(Duration::from_millis(1));
                }
                hogs.stop();
                wanting.into_iter().for_each(|g| g.join().unwrap());
            });
        }
    });
}

/// A few milliseconds, in registers.
fn compute() {
    let mut x = 1u64;
    for _ in 0..500_000 {
        x = black_box(x.rotate_left(7) ^ 0x9e37_79b9);
    }
}

#[test]
fn in_a_std_mutex() {
    static MUTEX: Mutex<()> = Mutex::new(());
    fn lock(f: &dyn Fn()) {
        {
            let _held = MUTEX.lock().unwrap();
            f();
        }
        // A std mutex is not fair: somebody else gets a chance.
        f();
    }
    nobody_waits_for_good(lock, || lock(&|| ()));
}

/// The C library's locks: those of its arenas. It does nothing else, so that most signals come
/// while it is in there.
#[test]
fn in_malloc() {
    fn allocate(_: &dyn Fn()) {
        // Some live at a time, and of sizes for which there is no cache of the thread's own.
        let mut some: [Vec<u8>; 16] = Default::default();
        for i in 0..20_000 {
            some[i % 16] = black_box(Vec::with_capacity(2_000 + i * 37 % 60_000));
        }
    }
    nobody_waits_for_good(allocate, || allocate(&|| ()));
}

#[test]
fn in_println() {
    /// What is printed may compute.
    struct Slow<'a>(&'a dyn Fn());
    impl std::fmt::Display for Slow<'_> {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            (self.0)();
            Ok(())
        }
    }
    fn print(f: &dyn Fn()) {
        // Past the capture of libtest, to the lock of standard output.
        write!(std::io::stdout().lock(), "{}", Slow(f)).unwrap();
        f();
    }
    nobody_waits_for_good(print, || print(&|| ()));
}

/// The dynamic linker runs code of the program with its lock held: constructors, and
/// this.
#[test]
fn in_the_dynamic_linker() {
    unsafe extern "C" fn call(
        _: *mut libc::dl_phdr_info,
        _: libc::size_t,
        data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: see below.
        let f = unsafe { &*data.cast::<&dyn Fn()>() };
        f();
        1 // the first object is enough
    }
    fn iterate(f: &dyn Fn()) {
        // SAFETY: the callback gets a pointer to `f`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(call), (&raw const f).cast_mut().cast()) };
        f();
    }
    fn open() {
        iterate(&|| ());
        // SAFETY: a library of the system, which is loaded already.
        unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            if !library.is_null() {
                libc::dlclose(library);
            }
        }
    }
    nobody_waits_for_good(iterate, open);
}

/// A library whose constructor takes its time: the linker runs it with its lock held.
#[test]
fn in_dlopen() {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::OnceLock;
    static LIBRARY: OnceLock<CString> = OnceLock::new();
    const SOURCE: &str = "
        static volatile unsigned long done;
        __attribute__((constructor)) static void begin(void) {
            for (unsigned long i = 0; i < 10000000; i++) done += i;
        }
        unsigned long answer(void) { return done; }
    ";
    fn load(_: &dyn Fn()) {
        let path = LIBRARY.get().expect("it was made");
        // SAFETY: the constructor adds numbers, and nobody uses what is unloaded.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            assert!(!libc::dlsym(library, c"answer".as_ptr()).is_null());
            libc::dlclose(library);
        }
        compute();
    }
    fn look_up() {
        // SAFETY: looks for a function of the C library.
        assert!(!unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr()) }.is_null());
        // SAFETY: a library of the system, which is loaded already.
        unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            if !library.is_null() {
                libc::dlclose(library);
            }
        }
    }
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let id = std::process::id();
    let (source, library) = (dir.join(format!("slow{id}.c")), dir.join(format!("slow{id}.so")));
    std::fs::write(&source, SOURCE).unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    match compiler.status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return println!("skipped: there is no C compiler here ({error})"),
    }
    LIBRARY.get_or_init(|| CString::new(library.as_os_str().as_bytes()).unwrap());
    nobody_waits_for_good(load, look_up);
    let _ = std::fs::remove_file(source);
    let _ = std::fs::remove_file(library);
}

#[test]
fn children_start_while_goroutines_are_frozen() {
    watched(|| {
        let runtime = Builder::new().max_procs(2).max_runners(0).build().unwrap();
        runtime.run(|| {
            let hogs = Hogs::start(8, compute);
            let mut before = 0;
            for i in 0..5 {
                while runtime::stats().freezes < before + 8 {
                    time::sleep(Duration::from_millis(1));
                }
                before = runtime::stats().freezes;
                start_child(i, i % 2 == 0);
            }
            hogs.stop();
        });
    });
}

/// Those who fork are stopped themselves: before, in the middle and afterwards.
#[test]
fn hogs_start_children() {
    watched(|| {
        let runtime = Builder::new().max_procs(2).max_runners(0).build().unwrap();
        runtime.run(|| {
            let children = Arc::new(AtomicUsize::new(0));
            let count = children.clone();
            let hogs = Hogs::start(4, move || {
                compute();
                let number = count.load(Ordering::Relaxed);
                start_child(number as i32 % 100, true);
                count.fetch_add(1, Ordering::Relaxed);
            });
            let enough = || children.load(Ordering::Relaxed) >= 20 && runtime::stats().freezes >= 8;
            while !enough() && hogs.running() == 4 {
                time::sleep(Duration::from_millis(1));
            }
            hogs.stop();
        });
    });
}

/// Starts a process that ends with a number, and waits for it.
fn start_child(number: i32, by_fork: bool) {
    let mut child = std::process::Command::new("/bin/sh");
    child.args(["-c", "exit $0", &number.to_string()]);
    if by_fork {
        // By fork and exec, not by posix_spawn.
        // SAFETY: computes, and calls nothing.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut child, || {
                compute();
                Ok(())
            })
        };
    }
    assert_eq!(child.status().unwrap().code(), Some(number));
}

/// Dropped while goroutines stand still: they go on, see that they are to stop, and
/// do. Also those in calls, declared or not.
#[test]
fn a_runtime_is_dropped() {
    watched(|| {
        for strict in [true, false] {
            let mut builder = Builder::new().max_procs(2).shutdown_timeout(Duration::from_secs(60));
            if strict {
                builder = builder.max_runners(0);
            }
            let runtime = builder.build().unwrap();
            let hogs = runtime.run(|| {
                let hogs = Hogs::start(8, compute);
                let sleep = || std::thread::sleep(Duration::from_millis(50));
                drop(go(move || heist::syscall(sleep)));
                drop(go(move || heist::blocking(sleep)));
                drop(go(sleep));
                while runtime::stats().freezes < 8 {
                    time::sleep(Duration::from_millis(1));
                }
                hogs
            });
            let flag = hogs.flag();
            let stopper = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                flag.store(true, Ordering::Relaxed);
            });
            drop(runtime); // returns only when all have ended
            stopper.join().unwrap();
            assert_eq!(hogs.running(), 0);
        }
    });
}
