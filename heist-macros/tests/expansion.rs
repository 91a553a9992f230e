//! What the expansion hands to heist, seen by a stand-in for it. How it behaves
//! in programs is in the tests of `heist`, on which this crate cannot depend.

extern crate self as heist;

use heist_macros::{main, test};

mod __private {
    use std::cell::Cell;

    thread_local! {
        static LAST: Cell<Option<(Option<usize>, &'static str)>> = const { Cell::new(None) };
    }

    pub(crate) fn main<T>(max_procs: Option<usize>, body: impl FnOnce() -> T + 'static) -> T {
        test(max_procs, "main", body)
    }

    pub(crate) fn test<T>(
        max_procs: Option<usize>,
        name: &'static str,
        body: impl FnOnce() -> T + 'static,
    ) -> T {
        LAST.set(Some((max_procs, name)));
        body()
    }

    /// The options with which the calling body was started.
    pub(crate) fn options() -> (Option<usize>, &'static str) {
        LAST.get().expect("called by a body")
    }
}

use __private::options;

const FOUR: usize = 4;

#[main]
fn entry() -> (Option<usize>, &'static str) {
    options()
}

#[main(max_procs = FOUR + 1)]
fn entry_with_max_procs() -> (Option<usize>, &'static str) {
    options()
}

#[::core::prelude::v1::test]
fn main_passes_max_procs() {
    assert_eq!(entry(), (None, "main"));
    assert_eq!(entry_with_max_procs(), (Some(5), "main"));
}

#[test]
fn named() {
    assert_eq!(options(), (None, "expansion::named"));
}

mod outer {
    mod inner {
        #[heist_macros::test(max_procs = super::super::FOUR)]
        fn named() {
            let expected = (Some(4), "expansion::outer::inner::named");
            assert_eq!(crate::options(), expected);
        }
    }

    macro_rules! named {
        ($name:ident) => {
            #[heist_macros::test]
            fn $name() {
                let name = concat!("expansion::outer::", stringify!($name));
                assert_eq!(crate::options(), (None, name));
            }
        };
    }

    named!(by_a_macro);
}

/// Libtest starts each test with its path as the thread's name, without the
/// crate: what follows the first `::` of the goroutine's.
#[test]
fn named_as_libtest_does() {
    let (_, name) = options();
    let thread = std::thread::current();
    if let Some(libtest) = thread.name().filter(|name| *name != "main") {
        assert_eq!(name.split_once("::"), Some(("expansion", libtest)));
    }
}
