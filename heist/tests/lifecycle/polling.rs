//! Goroutines that never wait, but look again and again: they end with their runtime like
//! those that do.

use super::*;
use heist::chan::{self, SendTimeoutError, bounded, select, unbounded};
use heist::net::{UdpSocket, UnixStream};
use heist::sync::{self, Context, Once, RwLock, Semaphore, WaitGroup};
use heist::time;
use std::io::Read;
use std::time::Instant;

/// Something that needs no waiting, over and over.
struct Kind {
    name: &'static str,
    /// Makes what is repeated, on the goroutine itself.
    make: fn() -> Box<dyn FnMut()>,
}

macro_rules! kinds {
    ($($name:literal: { $($setup:tt)* } $($again:expr)?;)*) => {
        [$(Kind { name: $name, make: || { $($setup)* Box::new(move || { $(let _ = &$again;)? }) } }),*]
    };
}

/// What finds nothing.
fn in_vain() -> impl IntoIterator<Item = Kind> {
    const NOW: Duration = Duration::ZERO;
    kinds! {
        "try_recv": { let (s, r) = unbounded::<u8>(); } (&s, r.try_recv());
        "try_recv of what is disconnected": { let r = unbounded::<u8>().1; } r.try_recv();
        "recv of what is disconnected": { let r = unbounded::<u8>().1; } r.recv();
        "try_recv of never": { let r = chan::never::<u8>(); } r.try_recv();
        "try_iter": { let (s, r) = unbounded::<u8>(); } (&s, r.try_iter().next());
        "try_send": { let (s, r) = bounded(0); } (&r, s.try_send(vec![1]));
        "try_send to what is full": { let (s, r) = bounded(1); s.send(vec![1]).unwrap(); }
            (&r, s.try_send(vec![2]));
        "try_send to what is disconnected": { let s = bounded(1).0; } s.try_send(vec![1]);
        "send to what is disconnected": { let s = bounded(1).0; } s.send(vec![1]);
        "send_timeout of zero": { let (s, r) = bounded(0); } (&r, s.send_timeout(vec![1], NOW));
        "recv_timeout of zero": { let (s, r) = unbounded::<u8>(); } (&s, r.recv_timeout(NOW));
        "recv_timeout of never": { let r = chan::never::<u8>(); } r.recv_timeout(NOW);
        "recv_timeout of a tick": { let r = chan::tick(Duration::from_secs(3600)); }
            r.recv_timeout(NOW);
        "recv_deadline": { let (s, r) = unbounded::<u8>(); } (&s, r.recv_deadline(Instant::now()));
        "is_empty": { let (s, r) = unbounded::<u8>(); } (&s, r.is_empty());
        "is_full": { let (s, r) = bounded::<u8>(0); } (&s, r.is_full());
        "select with a default": { let (s, r) = unbounded::<u8>(); } {
            select! { recv(r) -> _ => {}, default => {} }
            &s
        };
        "select of two with a default": {
            let (s, r) = unbounded::<u8>();
            let (t, full) = bounded(0);
        } {
            select! { recv(r) -> _ => {}, send(t, vec![1]) -> _ => {}, default => {} }
            (&s, &full)
        };
        "ready in no time": { let (s, r) = unbounded::<u8>(); } {
            let mut select = chan::Select::new();
            select.recv(&r);
            (&s, select.ready_timeout(NOW))
        };
        "try_lock": { let m = sync::Mutex::new(1); std::mem::forget(m.lock()); }
            m.try_lock().is_ok();
        "try_read": { let l = RwLock::new(1); std::mem::forget(l.write()); } l.try_read().is_ok();
        "try_write": { let l = RwLock::new(1); std::mem::forget(l.read()); } l.try_write().is_ok();
        "try_acquire": { let s = Semaphore::new(0); } s.try_acquire().is_some();
        "acquire_timeout of zero": { let s = Semaphore::new(0); } s.acquire_timeout(NOW).is_some();
        "available_permits": { let s = Semaphore::new(0); } s.available_permits();
        "mpsc": { let (s, r) = sync::mpsc::channel::<u8>(); } (&s, r.try_recv());
        "mpsc recv_timeout of zero": { let (s, r) = sync::mpsc::channel::<u8>(); }
            (&s, r.recv_timeout(NOW));
        "Context::err": { let (c, cancel) = Context::background().with_cancel(); }
            (c.err(), &cancel);
        "is_finished": { let h = heist::go(thread::park); } h.is_finished();
        "a read that does not wait": {
            let (mut a, b) = UnixStream::pair().unwrap();
            a.set_nonblocking(true).unwrap();
        } (&b, a.read(&mut [0]));
        "sleep of zero": {} thread::sleep(NOW);
        "sleep_until": {} time::sleep_until(Instant::now());
        "park_timeout of zero": {} thread::park_timeout(NOW);
        "yield_now": {} thread::yield_now();
    }
}

/// What succeeds each time.
fn at_once() -> impl IntoIterator<Item = Kind> {
    kinds! {
        "lock": { let m = sync::Mutex::new(1); } m.lock().is_ok();
        "try_lock": { let m = sync::Mutex::new(1); } m.try_lock().is_ok();
        "read": { let l = RwLock::new(1); } l.read().is_ok();
        "write": { let l = RwLock::new(1); } l.write().is_ok();
        "acquire": { let s = Semaphore::new(1); } s.acquire().permits();
        "wait for nothing": { let group = WaitGroup::new(); } group.wait();
        "call_once": { let once = Once::new(); } once.call_once(|| ());
        "is_finished": { let h = heist::go(|| ()); while !h.is_finished() {} } h.is_finished();
        "park with a token": {} { thread::current().unpark(); thread::park() };
        "to and fro": { let (s, r) = bounded(1); } { s.send(1).unwrap(); r.recv().unwrap() };
        "try to and fro": { let (s, r) = bounded(1); } {
            s.try_send(1).unwrap();
            r.try_recv().unwrap()
        };
        "select": { let (s, r) = bounded(1); } {
            s.send(1).unwrap();
            select! { recv(r) -> m => m.unwrap() }
        };
        "is_empty": { let (s, r) = bounded(1); s.send(1).unwrap(); } r.is_empty();
        "send of a datagram": {
            let (a, b) = ["127.0.0.1:0"; 2].map(|to| UdpSocket::bind(to).unwrap()).into();
            let to = b.local_addr().unwrap();
        } (&b, a.send_to(&[1], to));
    }
}

/// The threads of runtimes of that name.
fn threads_called(name: &str) -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

fn ends(kind: &Kind, procs: usize, pinned: bool) {
    const PATIENT: Duration = Duration::from_secs(60);
    let (name, drops) = (kind.name, Drops::default());
    let thread_name = "polls";
    let runtime = heist::Builder::new()
        .max_procs(procs)
        .thread_name(thread_name)
        .shutdown_timeout(PATIENT)
        .build()
        .unwrap();
    let (begun, make) = (Arc::new(AtomicUsize::new(0)), kind.make);
    let handles: Vec<_> = (0..3)
        .map(|_| {
            let (droplet, begun) = (drops.value(), begun.clone());
            runtime.go(move || {
                let _droplet = droplet;
                let _pinned = pinned.then(heist::runtime::pin);
                let mut again = make();
                begun.fetch_add(1, Ordering::SeqCst);
                loop {
                    again();
                }
            })
        })
        .collect();
    until(|| begun.load(Ordering::SeqCst) == handles.len());
    let begin = Instant::now();
    drop(runtime);
    assert!(begin.elapsed() < PATIENT / 2, "{name}, {procs}, {pinned}: {:?}", begin.elapsed());
    assert_eq!(drops.count(), handles.len(), "{name}");
    assert!(handles.into_iter().all(|handle| is_stopped(handle.join())), "{name}");
    // The kernel shows one that has ended for a moment more.
    until(|| threads_called(thread_name) == 0);
}

#[test]
fn those_who_look_end_with_their_runtime() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        assert_eq!(stderr(&output).matches("left behind").count(), 0, "{}", stderr(&output));
        return;
    }
    watched(|| {
        for kind in in_vain().into_iter().chain(at_once()) {
            for (procs, pinned) in [(1, false), (2, false), (2, true)] {
                ends(&kind, procs, pinned);
            }
        }
    });
}

/// Who is told to end by a failed call has its message back; and who cleans up may take a
/// lock that is free.
#[test]
fn what_is_to_be_had_back_is_not_lost_at_once() {
    watched(|| {
        let runtime = runtime(1);
        let (begun, kept) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (says, keeps) = (begun.clone(), kept.clone());
        let handle = runtime.go(move || {
            let (s, _r) = bounded(0);
            let mut message = Some(Box::new(5));
            let stopped = catch_unwind(AssertUnwindSafe(|| {
                loop {
                    for _ in 0..16 {
                        let back = s.send_timeout(message.take().unwrap(), Duration::ZERO);
                        let Err(SendTimeoutError::Timeout(back)) = back else { unreachable!() };
                        message = Some(back);
                    }
                    says.store(true, Ordering::SeqCst);
                    thread::yield_now();
                }
            }));
            assert!(stopped.is_err());
            let log = sync::Mutex::new(keeps);
            (0..10).for_each(|_| log.lock().unwrap().lock().unwrap().push(message.clone()));
        });
        until(|| begun.load(Ordering::SeqCst));
        drop(runtime);
        assert!(handle.join().is_ok());
        assert_eq!(*kept.lock().unwrap(), vec![Some(Box::new(5)); 10]);
    });
}

/// A destructor that looks while its goroutine unwinds goes on.
#[test]
fn who_unwinds_already_is_not_unwound_again() {
    struct Looks(Arc<AtomicUsize>);
    impl Drop for Looks {
        fn drop(&mut self) {
            let (held, (s, r)) = (sync::Mutex::new(()), bounded(0));
            let guard = held.lock().unwrap();
            for _ in 0..1000 {
                assert!(held.try_lock().is_err() && r.try_recv().is_err() && r.is_empty());
                assert!(s.try_send(1).is_err() && r.recv_timeout(Duration::ZERO).is_err());
                drop(RwLock::new(()).read().unwrap());
            }
            drop(guard);
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    watched(|| {
        for procs in [1, 2] {
            let (runtime, dropped) = (runtime(procs), Arc::new(AtomicUsize::new(0)));
            let begun = Arc::new(AtomicUsize::new(0));
            for i in 0..4 {
                let (looks, begun) = (Looks(dropped.clone()), begun.clone());
                drop(runtime.go(move || {
                    let _looks = looks;
                    let (_s, r) = unbounded::<u8>();
                    begun.fetch_add(1, Ordering::SeqCst);
                    loop {
                        match i % 2 {
                            0 => drop(r.try_recv()),
                            _ => thread::park(),
                        }
                    }
                }));
            }
            until(|| begun.load(Ordering::SeqCst) == 4);
            drop(runtime);
            assert_eq!(dropped.load(Ordering::SeqCst), 4);
        }
    });
}
