//! smoke
use std::time::Instant;
fn main() {
    for procs in [1usize, 2] {
        let rt = heist::Builder::new().max_procs(procs).build().unwrap();
        for _ in 0..3 {
            let n = 1_000_000u64;
            let t = Instant::now();
            let sum: u64 = rt.run(move || {
                let hs: Vec<_> = (0..n).map(|i| heist::go(move || i)).collect();
                hs.into_iter().map(|h| h.join().unwrap()).sum()
            });
            assert_eq!(sum, n * (n - 1) / 2);
            println!(
                "procs {procs}: spawn_join {:.1} ns",
                t.elapsed().as_nanos() as f64 / n as f64
            );
        }
        for _ in 0..3 {
            let n = 1_000_000u64;
            let t = Instant::now();
            rt.run(move || {
                let left = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(n));
                let me = heist::thread::current();
                for _ in 0..n {
                    let left = left.clone();
                    let me = me.clone();
                    drop(heist::go(move || {
                        if left.fetch_sub(1, std::sync::atomic::Ordering::AcqRel) == 1 {
                            me.unpark()
                        }
                    }));
                }
                while left.load(std::sync::atomic::Ordering::Acquire) > 0 {
                    heist::thread::park();
                }
            });
            println!(
                "procs {procs}: spawn_wait {:.1} ns",
                t.elapsed().as_nanos() as f64 / n as f64
            );
        }
        for _ in 0..3 {
            let t = Instant::now();
            rt.run(move || {
                let hs: Vec<_> = (0..1000)
                    .map(|_| {
                        heist::go(|| {
                            for _ in 0..1000 {
                                heist::thread::yield_now()
                            }
                        })
                    })
                    .collect();
                for h in hs {
                    h.join().unwrap()
                }
            });
            println!("procs {procs}: yield {:.1} ns", t.elapsed().as_nanos() as f64 / 1e6);
        }
        println!("{:?}", rt.stats());
    }
}
