//! Run.

use super::*;

#[test]
fn run_returns_its_value_while_others_are_parked() {
    watched(|| {
        let (runtime, drops) = (runtime(2), Drops::default());
        let handles = sleepers(&runtime, 10, &drops);
        let borrowed = String::from("borrowed");
        assert_eq!(runtime.run(|| borrowed.len()), 8);
        assert_eq!(runtime.num_goroutines(), 10);
        assert_eq!(drops.count(), 0, "they go on sleeping");
        assert_eq!(runtime.run(|| thread::spawn(|| 5).join().unwrap()), 5);
        drop(runtime);
        assert_eq!(drops.count(), 10);
        assert!(handles.into_iter().all(|handle| is_stopped(handle.join())));
    });
}

#[test]
fn a_panic_comes_out_of_run_with_its_payload_and_the_runtime_goes_on() {
    #[derive(Debug, PartialEq)]
    struct Custom(u32);
    watched(|| {
        let runtime = runtime(1);
        for _ in 0..3 {
            let panic = catch_unwind(AssertUnwindSafe(|| runtime.run(|| panic_any(Custom(7)))));
            assert_eq!(*panic.unwrap_err().downcast::<Custom>().unwrap(), Custom(7));
            let panic = catch_unwind(AssertUnwindSafe(|| runtime.run(|| panic!("with a text"))));
            assert_eq!(text(&*panic.unwrap_err()), "with a text");
            assert_eq!(runtime.run(|| 5), 5);
        }
        let panic = catch_unwind(|| heist::run(|| panic_any(Custom(8))));
        assert_eq!(*panic.unwrap_err().downcast::<Custom>().unwrap(), Custom(8));
        // Through two runs, one inside the other.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.run(|| heist::run(|| panic_any(Custom(9))));
        }));
        assert_eq!(*panic.unwrap_err().downcast::<Custom>().unwrap(), Custom(9));
    });
}
