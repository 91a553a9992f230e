//! Settings from outside.

use crate::common::{runtime, watched};
use crate::line::Line;
use crate::process::{PATIENCE, case_of, finish, this_test};
use heist::{Runtime, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn heist_max_procs_sets_the_number_of_ps() {
    const TEST: &str = "heist_max_procs_sets_the_number_of_ps";
    if let Some(case) = case_of(TEST) {
        let expected = case.parse().unwrap();
        assert_eq!(heist::runtime::max_procs(), expected);
        assert_eq!(heist::run(heist::runtime::max_procs), expected);
        assert_eq!(Runtime::new().unwrap().max_procs(), expected);
        // What the program says itself comes first.
        assert_eq!(runtime(5).max_procs(), 5);
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().to_string();
    for (value, expected) in [("3", "3"), ("1", "1"), (" 64 ", "64"), ("", &cpus)] {
        let mut child = this_test(TEST, expected);
        let ended = finish(child.env("HEIST_MAX_PROCS", value), PATIENCE);
        assert!(ended.status.success(), "'{value}': {ended}");
    }
}

#[test]
fn a_bad_heist_max_procs_is_a_panic_that_says_what_is_wrong() {
    const TEST: &str = "a_bad_heist_max_procs_is_a_panic_that_says_what_is_wrong";
    if let Some(case) = case_of(TEST) {
        let error = Runtime::new().unwrap_err().to_string();
        assert!(error.contains("HEIST_MAX_PROCS"), "{error}");
        assert!(error.contains(case.trim()), "{error}");
        // A program that says it itself does not look at the variable.
        assert_eq!(runtime(2).max_procs(), 2);
        heist::run(|| ());
        unreachable!("there is no such number of Ps");
    }
    for value in ["many", "-1", "0", "1025", "1.5", "99999999999999999999"] {
        let mut child = this_test(TEST, value);
        let ended = finish(child.env("HEIST_MAX_PROCS", value), PATIENCE);
        ended.assert_exit(101);
        ended.assert_says(&["cannot start the default runtime", value]);
        ended.assert_silent_about("internal error");
    }
}

/// The numbers of a schedtrace line, if it has Go's shape.
fn parse_schedtrace(line: &str) -> Option<(Vec<u64>, Vec<u64>, Vec<u64>)> {
    let mut line = Line(line);
    let mut numbers = Vec::new();
    for before in [
        "SCHED ",
        "ms: gomaxprocs=",
        " idleprocs=",
        " threads=",
        " spinningthreads=",
        " needspinning=",
        " idlethreads=",
        " runqueue=",
    ] {
        if !line.exactly(before) {
            return None;
        }
        numbers.push(line.number()?);
    }
    if !line.exactly(" ") {
        return None;
    }
    let queues = line.list()?;
    if !line.exactly(" schedticks=") {
        return None;
    }
    let ticks = line.list()?;
    line.0.is_empty().then_some((numbers, queues, ticks))
}

/// Something to see for a tenth of a second.
fn some_work(procs: usize) {
    let runtime = runtime(procs);
    let parked = runtime.go(|| thread::park());
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let computes = runtime.go(move || while !is_over.load(Ordering::Relaxed) {});
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(150) {
        runtime.run(|| (0..100).for_each(|_| thread::yield_now()));
    }
    over.store(true, Ordering::Relaxed);
    computes.join().unwrap();
    parked.thread().unpark();
    parked.join().unwrap();
}

#[test]
fn schedtrace_prints_lines_of_gos_shape() {
    const TEST: &str = "schedtrace_prints_lines_of_gos_shape";
    if case_of(TEST).is_some() {
        return watched(|| some_work(3));
    }
    let mut child = this_test(TEST, "");
    let ended = finish(child.env("HEISTDEBUG", "schedtrace=10"), PATIENCE);
    ended.assert_exit(0);
    let lines: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("SCHED ")).collect();
    assert!(lines.len() >= 2, "{ended}");
    let mut last = 0;
    for line in lines {
        let parsed = parse_schedtrace(line);
        let (numbers, queues, ticks) = parsed.unwrap_or_else(|| panic!("not its shape: {line}"));
        let [at, procs, idle, threads, spinning, need, idle_threads, _] = numbers[..] else {
            panic!("eight numbers: {line}");
        };
        assert!(at >= last, "the time goes on: {line}");
        last = at;
        assert_eq!((procs, queues.len(), ticks.len()), (3, 3, 3), "{line}");
        assert!(idle <= procs && spinning <= procs && need <= 1, "{line}");
        assert!(idle_threads < threads, "sysmon is one of them: {line}");
    }
    ended.assert_silent_about("  P0:");
}

#[test]
fn scheddetail_prints_a_line_for_each_p_m_and_g() {
    const TEST: &str = "scheddetail_prints_a_line_for_each_p_m_and_g";
    if case_of(TEST).is_some() {
        return watched(|| some_work(2));
    }
    let mut child = this_test(TEST, "");
    let ended = finish(child.env("HEISTDEBUG", "schedtrace=10,scheddetail=1"), PATIENCE);
    ended.assert_exit(0);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].starts_with("SCHED ")).collect();
    assert!(starts.len() >= 2, "{ended}");
    let fields = |line: &str, names: &[&str]| {
        let rest = line.split_once(": ").map_or("", |(_, rest)| rest);
        names.iter().all(|name| rest.contains(&format!("{name}=")))
    };
    let (mut parked, mut running) = (0, 0);
    for pair in starts.windows(2) {
        let block = &lines[pair[0] + 1..pair[1]];
        let of = |letter: char| {
            block.iter().filter(move |line| {
                let mut parse = Line(line);
                parse.exactly(&format!("  {letter}")) && parse.number().is_some()
            })
        };
        let p = ["status", "schedtick", "syscalltick", "m", "runqsize", "gfreecnt", "timerslen"];
        assert_eq!(of('P').count(), 2, "{block:?}");
        assert!(of('P').all(|line| fields(line, &p)), "{block:?}");
        let m = ["p", "curg", "spinning", "blocked", "lockedg"];
        assert!(of('M').count() >= 1, "{block:?}");
        assert!(of('M').all(|line| fields(line, &m)), "{block:?}");
        assert!(of('G').all(|line| fields(line, &["status", "m", "lockedm"])), "{block:?}");
        parked += of('G').filter(|line| line.contains("status=4(park) m=nil")).count();
        running += of('G').filter(|line| !line.contains(" m=nil")).count();
    }
    assert!(running >= 1, "one ran all the time, on an M: {ended}");
    assert!(parked >= 1, "one was parked all the time: {ended}");
}

#[test]
fn an_unknown_heistdebug_switch_is_named_and_nothing_stops() {
    const TEST: &str = "an_unknown_heistdebug_switch_is_named_and_nothing_stops";
    if case_of(TEST).is_some() {
        assert_eq!(heist::run(|| 5), 5);
        return;
    }
    for value in ["gctrace=1", "schedtrace=fast", "scheddetail"] {
        let mut child = this_test(TEST, "");
        let ended = finish(child.env("HEISTDEBUG", value), PATIENCE);
        ended.assert_exit(0);
        ended.assert_says(&["HEISTDEBUG", &format!("'{value}'"), "schedtrace="]);
    }
    let mut child = this_test(TEST, "");
    let ended = finish(child.env("HEISTDEBUG", ""), PATIENCE);
    ended.assert_silent_about("HEISTDEBUG");
}
