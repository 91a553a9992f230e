//! `heist::signal`. Signals belong to the process, so that each test has its own.

use super::*;
use heist::chan::{RecvTimeoutError, TryRecvError};
use heist::signal::{self, Signal};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::time::Duration;

/// Runs a test in a process of its own, as [`everywhere`]; there it succeeds.
fn alone(check: impl Fn() + Sync) {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{:?}\n{}", output.status, stderr(&output));
        return;
    }
    everywhere(check);
}

/// Runs a test in a process of its own, which ends in its own way.
fn ends(check: impl FnOnce()) -> Option<Output> {
    let output = in_a_process();
    if output.is_none() {
        watched(check);
    }
    output
}

/// What a signal does now: the default, nothing, or a handler.
fn handler_of(signal: Signal) -> usize {
    // SAFETY: a query into a live local, for which zero is valid.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal.as_raw(), std::ptr::null(), &mut now), 0);
        now.sa_sigaction
    }
}

#[test]
fn a_signal_goes_to_all_who_asked() {
    alone(|| {
        let one = signal::notify(&[Signal::USR1]).unwrap();
        let both = signal::notify(&[Signal::USR1, Signal::USR2, Signal::USR1]).unwrap();
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(one.recv(), Ok(Signal::USR1));
        assert_eq!(both.recv(), Ok(Signal::USR1));
        signal::raise(Signal::USR2).unwrap();
        assert_eq!(both.recv(), Ok(Signal::USR2));
        assert_eq!(one.try_recv(), Err(TryRecvError::Empty));
        signal::stop(&one);
        signal::stop(&both);
    });
}

#[test]
fn a_goroutine_that_waits_for_a_signal_parks() {
    alone(|| {
        let signals = signal::notify(&[Signal::HUP]).unwrap();
        let waiter = heist::go({
            let signals = signals.clone();
            move || signals.recv()
        });
        for _ in 0..100 {
            heist::thread::yield_now();
        }
        signal::raise(Signal::HUP).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(Signal::HUP));
        signal::stop(&signals);
    });
}

#[test]
fn select_has_signals() {
    alone(|| {
        let signals = signal::notify(&[Signal::TERM]).unwrap();
        let (_sender, work) = heist::chan::bounded::<()>(0);
        signal::raise(Signal::TERM).unwrap();
        heist::chan::select! {
            recv(work) -> _ => unreachable!(),
            recv(signals) -> signal => assert_eq!(signal, Ok(Signal::TERM)),
        }
        signal::stop(&signals);
    });
}

#[test]
fn whoever_does_not_keep_up_misses_some() {
    alone(|| {
        let slow = signal::notify(&[Signal::USR1]).unwrap();
        let control = signal::notify(&[Signal::USR1]).unwrap();
        for _ in 0..10 {
            signal::raise(Signal::USR1).unwrap();
            assert_eq!(control.recv(), Ok(Signal::USR1));
        }
        assert_eq!(slow.try_iter().count(), 1);
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(slow.recv(), Ok(Signal::USR1), "there is room again");
        signal::stop(&control);
        signal::stop(&slow);
    });
}

#[test]
fn stopping_puts_back_what_was() {
    alone(|| {
        let before = handler_of(Signal::USR1);
        let one = signal::notify(&[Signal::USR1]).unwrap();
        let two = signal::notify(&[Signal::USR1]).unwrap();
        assert_ne!(handler_of(Signal::USR1), before);
        signal::raise(Signal::USR1).unwrap();
        signal::stop(&one);
        assert_eq!(one.recv(), Ok(Signal::USR1), "what had come is there");
        assert!(one.recv().is_err());
        assert_ne!(handler_of(Signal::USR1), before, "there is another");
        signal::stop(&one);
        signal::stop(&two);
        assert_eq!(handler_of(Signal::USR1), before);
    });
}

#[test]
fn ignore_and_reset() {
    alone(|| {
        let before = handler_of(Signal::TERM);
        let signals = signal::notify(&[Signal::TERM, Signal::USR1]).unwrap();
        signal::ignore(&[Signal::TERM]).unwrap();
        assert!(signal::ignored(Signal::TERM));
        signal::raise(Signal::TERM).unwrap();
        signal::raise(Signal::USR1).unwrap();
        assert_eq!(signals.recv(), Ok(Signal::USR1), "only that");
        signal::reset(&[Signal::TERM, Signal::USR1]);
        assert_eq!(handler_of(Signal::TERM), before);
        assert!(signals.recv().is_err(), "nothing is left to receive");

        signal::ignore(&[Signal::TERM]).unwrap();
        let again = signal::notify(&[Signal::TERM]).unwrap();
        assert!(!signal::ignored(Signal::TERM));
        signal::raise(Signal::TERM).unwrap();
        assert_eq!(again.recv(), Ok(Signal::TERM));
        signal::stop(&again);
        assert_eq!(handler_of(Signal::TERM), before);
    });
}

#[test]
fn an_empty_list_means_all() {
    alone(|| {
        use Signal as S;
        heist::run(|| {}); // the runtime's own handlers are there
        // The C library has a few for itself.
        let numbers = (1..32).chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        let all: Vec<S> = numbers.map(S::from_raw).collect();
        let handlers = || all.iter().map(|&signal| handler_of(signal)).collect::<Vec<_>>();
        let before = handlers();
        let spared = [S::KILL, S::STOP, S::SEGV, S::BUS, S::FPE, S::ILL, S::URG, S::TRAP, S::SYS];
        let spared_are_as_before = || {
            let now = handlers().into_iter().zip(&before).zip(&all);
            now.filter(|(_, signal)| spared.contains(signal)).all(|((now, was), _)| now == *was)
        };

        let signals = signal::notify(&[]).unwrap();
        let one = signal::notify(&[S::HUP]).unwrap();
        for &signal in all.iter().filter(|signal| !spared.contains(signal)) {
            signal::raise(signal).unwrap();
            assert_eq!(signals.recv(), Ok(signal));
        }
        assert_eq!(one.recv(), Ok(S::HUP));
        assert!(spared_are_as_before());

        signal::ignore(&[]).unwrap();
        for &signal in all.iter().filter(|signal| !spared.contains(signal)) {
            signal::raise(signal).unwrap();
            assert_eq!(signal::ignored(signal), signal != S::CHLD, "{signal}");
        }
        assert!(signals.recv().is_err() && one.recv().is_err());
        assert!(spared_are_as_before());
        let child = heist::process::Command::new("true").status();
        assert!(child.unwrap().success(), "children are waited for as before");

        let again = signal::notify(&[S::HUP]).unwrap();
        signal::reset(&[]);
        assert!(again.recv().is_err());
        assert_eq!(handlers(), before);
    });
}

#[test]
fn some_signals_cannot_be_had() {
    alone(|| {
        use Signal as S;
        heist::run(|| {}); // the runtime's own handlers are there
        let fault = handler_of(S::SEGV);
        for signal in [S::KILL, S::STOP, S::SEGV, S::BUS, S::FPE, S::ILL, S::URG] {
            let error = signal::notify(&[S::USR1, signal]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(signal.name().unwrap()), "{error}");
            assert!(signal::ignore(&[signal]).is_err());
            assert_eq!(handler_of(S::USR1), libc::SIG_DFL, "nothing was changed");
        }
        assert!(signal::notify(&[S::USR1, S::from_raw(1000)]).is_err());
        assert_eq!(handler_of(S::USR1), libc::SIG_DFL);
        assert_eq!(handler_of(S::SEGV), fault);
    });
}

#[test]
fn real_time_signals_have_numbers() {
    alone(|| {
        let last = Signal::from_raw(libc::SIGRTMAX());
        let signals = signal::notify(&[last]).unwrap();
        signal::raise(last).unwrap();
        assert_eq!(signals.recv(), Ok(last));
        signal::stop(&signals);
    });
}

#[test]
fn ctrl_c_is_waited_for() {
    alone(|| {
        let waiter = heist::go(signal::ctrl_c);
        until(|| handler_of(Signal::INT) != libc::SIG_DFL);
        // The handler is there before the receiver is.
        let interrupts = signal::notify(&[Signal::INT]).unwrap();
        signal::raise(Signal::INT).unwrap();
        waiter.join().unwrap().unwrap();
        assert_eq!(interrupts.recv(), Ok(Signal::INT));
        signal::stop(&interrupts);
        assert_eq!(handler_of(Signal::INT), libc::SIG_DFL);
    });
}

#[test]
fn a_signal_for_a_receiver_that_is_gone_does_what_it_did() {
    let Some(output) = ends(|| {
        let signals = signal::notify(&[Signal::TERM]).unwrap();
        drop(signals);
        signal::raise(Signal::TERM).unwrap();
        heist::thread::sleep(Duration::from_secs(60));
    }) else {
        return;
    };
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}", stderr(&output));
}

#[test]
fn after_stop_a_signal_does_what_it_did() {
    let Some(output) = ends(|| {
        let signals = signal::notify(&[Signal::INT]).unwrap();
        signal::raise(Signal::INT).unwrap();
        signals.recv().unwrap();
        signal::stop(&signals);
        signal::raise(Signal::INT).unwrap();
        heist::thread::sleep(Duration::from_secs(60));
    }) else {
        return;
    };
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "{}", stderr(&output));
}

#[test]
fn quit_prints_goroutines_unless_somebody_wants_it() {
    let Some(output) = ends(|| {
        let quits = signal::notify(&[Signal::QUIT]).unwrap();
        heist::run(|| {
            signal::raise(Signal::QUIT).unwrap();
            assert_eq!(quits.recv(), Ok(Signal::QUIT));
            eprintln!("it was for us");
            signal::stop(&quits);
            signal::raise(Signal::QUIT).unwrap();
            heist::thread::sleep(Duration::from_secs(60));
        });
    }) else {
        return;
    };
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let after = said.split_once("it was for us").expect(&said).1;
    assert!(after.contains("SIGQUIT: quit") && after.contains("goroutine "), "{said}");
}

#[test]
fn waiting_for_a_signal_is_no_deadlock() {
    alone(|| {
        let signals = signal::notify(&[Signal::USR1]).unwrap();
        let (_sender, nothing) = heist::chan::bounded::<()>(0);
        let timeout = nothing.recv_timeout(Duration::from_millis(100));
        assert_eq!(timeout, Err(RecvTimeoutError::Timeout));
        let from_outside = std::process::Command::new("sh")
            .args(["-c", &format!("sleep 0.3; kill -USR1 {}", std::process::id())])
            .spawn();
        assert_eq!(signals.recv(), Ok(Signal::USR1));
        from_outside.unwrap().wait().unwrap();
        signal::stop(&signals);
    });
}

#[test]
fn many_come_and_go_and_nothing_is_left() {
    alone(|| {
        let first = signal::notify(&[Signal::USR1]).unwrap();
        warm_up();
        let before = descriptors();
        heist::thread::scope(|scope| {
            for i in 0..8 {
                scope.spawn(move || {
                    for _ in 0..50 {
                        let signal = [Signal::USR1, Signal::USR2][i % 2];
                        let signals = signal::notify(&[signal]).unwrap();
                        signal::raise(signal).unwrap();
                        assert_eq!(signals.recv(), Ok(signal));
                        signal::stop(&signals);
                    }
                });
            }
            // USR1 stays caught throughout; USR2 does not.
            scope
                .spawn(|| {
                    let keep = signal::notify(&[Signal::USR2]).unwrap();
                    until(|| handler_of(Signal::USR2) != libc::SIG_DFL);
                    keep
                })
                .join()
                .unwrap();
        });
        signal::stop(&first);
        assert_eq!(descriptors(), before);
        assert_eq!(handler_of(Signal::USR1), libc::SIG_DFL);
        let names: BTreeSet<_> = (1..32).map(|n| Signal::from_raw(n).to_string()).collect();
        assert_eq!(names.len(), 31, "each has a name of its own");
    });
}
