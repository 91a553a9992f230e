//! What a goroutine's panic prints: as std does, with the goroutine for the
//! thread.
//!
//! ```text
//! cargo run -p heist --example panics
//! ```
//!
//! With the argument `own-hook` the program has a hook of its own before heist
//! starts, with `late-hook` after; either is called instead.

use heist::thread;
use std::panic::PanicHookInfo;

fn main() {
    let case = std::env::args().nth(1).unwrap_or_default();
    if case == "own-hook" {
        std::panic::set_hook(Box::new(own));
    }
    heist::run(|| {
        if case == "late-hook" {
            std::panic::set_hook(Box::new(own));
        }
        let named = thread::Builder::new().name("worker".into());
        let named = named.spawn(|| panic!("out of cookies")).unwrap();
        while !named.is_finished() {
            thread::yield_now();
        }
        // Nobody asks how it ended.
        drop(named);
        let unnamed = thread::spawn(|| std::panic::panic_any(7));
        assert!(unnamed.join().is_err());
    });
    let plain = std::thread::Builder::new().name("plain".into());
    let plain = plain.spawn(|| panic!("not a goroutine")).unwrap();
    assert!(plain.join().is_err());
    println!("done");
}

fn own(info: &PanicHookInfo<'_>) {
    eprintln!("own hook: {:?}", info.payload_as_str());
}
