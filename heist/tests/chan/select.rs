//! Choosing among operations.

use super::*;

#[test]
fn each_way_to_select() {
    everywhere(|| {
        let (s, r) = bounded(1);
        let mut sel = Select::new();
        let receives = sel.recv(&r);
        assert!(sel.try_select().is_err());
        assert!(sel.select_timeout(Duration::from_millis(1)).is_err());
        assert!(sel.select_deadline(Instant::now()).is_err());
        s.send(1).unwrap();
        let operation = sel.select();
        assert_eq!(operation.index(), receives);
        assert_eq!(operation.recv(&r), Ok(1));
        let sends = sel.send(&s);
        let operation = sel.try_select().unwrap();
        assert_eq!(operation.index(), sends);
        assert_eq!(operation.send(&s, 2), Ok(()));
        assert_eq!(r.recv(), Ok(2));
        sel.remove(sends);
        assert!(sel.try_select().is_err(), "only the receive is left");
        drop(s);
        let mut sel = Select::new();
        sel.recv(&r);
        let operation = sel.select_timeout(CENTURIES).unwrap();
        assert_eq!(operation.recv(&r), Err(RecvError));
    });
}

/// The first that is ready, time after time; and one that is ready only later, if the first ones
/// are not. Without the bias each has its turn.
#[test]
fn a_biased_select_takes_the_first_in_each_way() {
    const TIMES: usize = 64;
    everywhere(|| {
        let (sender, full) = unbounded();
        (0..TIMES * 20).for_each(|i| sender.send(i).unwrap());
        let (_quiet, empty) = unbounded::<usize>();
        type Way = fn(&mut Select<'_>, &Receiver<usize>) -> usize;
        let ways: [Way; 6] = [
            |select, r| finish(select.select(), r),
            |select, r| finish(select.try_select().unwrap(), r),
            |select, r| finish(select.select_timeout(Duration::from_secs(60)).unwrap(), r),
            |select, _| select.ready(),
            |select, _| select.try_ready().unwrap(),
            |select, _| select.ready_timeout(Duration::from_secs(60)).unwrap(),
        ];
        for way in ways {
            let chosen = |biased: bool| {
                let mut select = if biased { Select::new_biased() } else { Select::new() };
                for r in [&empty, &full, &full, &full] {
                    select.recv(r);
                }
                let mut chosen = [0; 4];
                (0..TIMES).for_each(|_| chosen[way(&mut select, &full)] += 1);
                chosen
            };
            assert_eq!(chosen(true), [0, TIMES, 0, 0]);
            let [none, shares @ ..] = chosen(false);
            // None of them, by chance, once in 10^11 times.
            assert!(none == 0 && shares.iter().all(|share| *share > 0), "{shares:?}");
        }
    });
}

/// Completes an operation, and says which it was.
fn finish(operation: SelectedOperation<'_>, r: &Receiver<usize>) -> usize {
    let index = operation.index();
    operation.recv(r).unwrap();
    index
}

#[test]
fn misuse_is_told() {
    fn panics(f: impl FnOnce()) -> String {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        text(&*caught.unwrap_err()).to_owned()
    }
    let (s, r) = bounded::<i32>(2);
    let (s2, r2) = (s.clone(), r.clone());
    assert_eq!(
        panics(|| drop(Select::new().select())),
        "no operations have been added to `Select`"
    );
    assert_eq!(
        panics(|| assert_eq!(Select::new().ready(), 0)),
        "no operations have been added to `Select`"
    );
    let said = panics(|| {
        let mut sel = Select::new();
        sel.send(&s);
        drop(sel.select());
    });
    assert_eq!(said, "dropped `SelectedOperation` without completing the operation");
    let said = panics(|| {
        let mut sel = Select::new();
        sel.send(&s);
        let _ = sel.select().send(&s2, 1);
    });
    assert_eq!(said, "passed a sender that wasn't selected");
    // What was not completed takes no room.
    assert_eq!((s.try_send(1), s.try_send(2)), (Ok(()), Ok(())));
    let said = panics(|| {
        let mut sel = Select::new();
        sel.recv(&r);
        let _ = sel.select().recv(&r2);
    });
    assert_eq!(said, "passed a receiver that wasn't selected");
    let said = panics(|| Select::new().remove(0));
    assert_eq!(said, "index out of bounds; 0 >= 0");
    let said = panics(|| {
        let mut sel = Select::new();
        sel.recv(&r);
        sel.remove(0);
        sel.remove(0);
    });
    assert_eq!(said, "no operation with this index");
}

/// While a token is moved from one channel to another, it is always in one of
/// them: a select that looks at both finds it.
#[test]
fn default_is_not_taken_while_something_is_ready() {
    watched(|| {
        runtime(2).run(|| {
            for _ in 0..many(100_000) {
                let (s1, r1) = bounded(1);
                let (s2, r2) = bounded(1);
                s1.send(1).unwrap();
                let looker = {
                    let (r1, r2) = (r1.clone(), r2.clone());
                    go(move || {
                        select! {
                            recv(r1) -> _ => true,
                            recv(r2) -> _ => true,
                            default => false,
                        }
                    })
                };
                s2.send(1).unwrap();
                let _ = r1.try_recv();
                assert!(looker.join().unwrap(), "one of them was ready at every moment");
            }
        });
    });
}

#[test]
fn never_from_itself() {
    watched(|| {
        for procs in [1, 4] {
            runtime(procs).run(|| {
                for capacity in [0, 10] {
                    let (s, r) = bounded(capacity);
                    let tasks: Vec<_> = (0..2)
                        .map(|me| {
                            let (s, r) = (s.clone(), r.clone());
                            go(move || {
                                for _ in 0..many(1000) {
                                    select! {
                                        recv(r) -> from => {
                                            let from = from.unwrap();
                                            assert!(capacity > 0 || from != me, "from itself");
                                        }
                                        send(s, me) -> sent => sent.unwrap(),
                                    }
                                }
                            })
                        })
                        .collect();
                    if capacity > 0 {
                        tasks.into_iter().for_each(|task| task.join().unwrap());
                        continue;
                    }
                    // One may end first, with the other in need of a partner.
                    let mut left = tasks;
                    while !left.is_empty() {
                        select! {
                            recv(r) -> _ => {}
                            send(s, 2) -> _ => {}
                            default(Duration::from_millis(1)) => {}
                        }
                        left.retain(|task| !task.is_finished());
                    }
                }
            });
        }
    });
}

/// One select waits at both ends of a channel, twice each, and others come.
#[test]
fn the_same_channel_several_times() {
    everywhere(|| {
        let (s, r) = bounded(0);
        for i in 0..100 {
            let other = {
                let (s, r) = (s.clone(), r.clone());
                go(
                    move || {
                        if i % 2 == 0 { s.send(i).unwrap() } else { assert_eq!(r.recv(), Ok(-1)) }
                    },
                )
            };
            let received = select! {
                recv(r) -> message => Some(message.unwrap()),
                send(s, -1) -> sent => sent.map(|()| None).unwrap(),
                recv(r) -> message => Some(message.unwrap()),
                send(s, -1) -> sent => sent.map(|()| None).unwrap(),
            };
            assert_eq!(received, (i % 2 == 0).then_some(i));
            other.join().unwrap();
        }
        assert!(s.try_send(0).is_err() && r.try_recv().is_err(), "nobody is left in the queues");
    });
}

/// Of two selects that meet at a channel without room, one makes its message only
/// after it was chosen.
#[test]
fn two_selects_meet() {
    everywhere(|| {
        let (s, r) = bounded(0);
        let sender = go(move || {
            for i in 0..many(2000) {
                select! {
                    send(s, { thread::yield_now(); i }) -> sent => sent.unwrap(),
                    default(CENTURIES) => unreachable!(),
                }
            }
        });
        for i in 0..many(2000) {
            let message = match i % 4 {
                0 => r.recv().unwrap(),
                1 => r.recv_timeout(CENTURIES).unwrap(),
                2 => select! { recv(r) -> m => m.unwrap(), recv(chan::never()) -> m => m.unwrap() },
                _ => loop {
                    if let Ok(message) = r.try_recv() {
                        break message;
                    }
                },
            };
            assert_eq!(message, i);
        }
        sender.join().unwrap();
    });
}

/// A sender that was chosen and then does not send leaves its receiver as it was.
#[test]
fn a_message_that_is_not_made() {
    everywhere(|| {
        for capacity in [0, 1] {
            let (s, r) = bounded(capacity);
            let receiver = {
                let r = r.clone();
                go(move || r.recv())
            };
            (0..10).for_each(|_| thread::yield_now());
            for _ in 0..10 {
                #[allow(clippy::never_loop, clippy::diverging_sub_expression, unreachable_code)]
                loop {
                    select! { send(s, break) -> sent => sent.unwrap(), }
                }
            }
            assert!(!receiver.is_finished());
            assert_eq!(s.send(3), Ok(()));
            assert_eq!(receiver.join().unwrap(), Ok(3));
            assert!(r.is_empty());
        }
    });
}

#[allow(clippy::diverging_sub_expression, unreachable_code)]
#[test]
fn a_message_is_made_only_for_the_case_that_was_chosen() {
    everywhere(|| {
        let (s, _r) = bounded(0);
        let (s2, r2) = bounded(1);
        select! {
            send(s, panic!("not chosen")) -> sent => sent.unwrap(),
            send(s2, 5) -> sent => sent.unwrap(),
        }
        assert_eq!(r2.recv(), Ok(5));
    });
}

/// Room that a select has reserved is its own, and others wait for it.
#[test]
fn reserved_room() {
    everywhere(|| {
        let (s, r) = bounded(1);
        let mut sel = Select::new();
        sel.send(&s);
        let operation = sel.select();
        assert_eq!(s.try_send(9), Err(TrySendError::Full(9)));
        assert!(s.is_full());
        let others: Vec<_> = (0..3)
            .map(|i| {
                let s = s.clone();
                go(move || s.send(i).unwrap())
            })
            .collect();
        let receiver = {
            let r = r.clone();
            go(move || (0..4).map(|_| r.recv().unwrap()).collect::<Vec<_>>())
        };
        (0..10).for_each(|_| thread::yield_now());
        assert_eq!(operation.send(&s, 7), Ok(()));
        let mut got = receiver.join().unwrap();
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 7]);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn more_cases_than_fit_on_the_stack() {
    everywhere(|| {
        let channels: Vec<_> = (0..100).map(|_| bounded::<usize>(0)).collect();
        for i in [0, 50, 99] {
            let sender = {
                let s = channels[i].0.clone();
                go(move || s.send(i).unwrap())
            };
            let mut sel = Select::new();
            for (_, r) in &channels {
                sel.recv(r);
            }
            let operation = sel.select();
            assert_eq!(operation.index(), i);
            assert_eq!(operation.recv(&channels[i].1), Ok(i));
            sender.join().unwrap();
        }
    });
}

#[test]
fn the_end_is_ready_too() {
    everywhere(|| {
        let (s, r) = bounded::<i32>(0);
        let waits = {
            let r = r.clone();
            go(move || {
                select! {
                    recv(r) -> message => message,
                    recv(chan::never()) -> message => message,
                }
            })
        };
        (0..10).for_each(|_| thread::yield_now());
        drop(s);
        assert_eq!(waits.join().unwrap(), Err(RecvError));
        let (s, r) = bounded(0);
        drop(r);
        select! {
            send(s, 1) -> sent => assert_eq!(sent, Err(SendError(1))),
            default => panic!("an end is ready"),
        }
    });
}

/// A select may go to another thread, messages that are not `Send` may not.
#[test]
fn messages_are_not_dropped_elsewhere() {
    let (s, r) = unbounded();
    let message = std::rc::Rc::new(());
    s.send(message.clone()).unwrap();
    let mut select = Select::new();
    select.recv(&r);
    std::thread::scope(|scope| {
        let dropped = scope.spawn(move || drop(select.select())).join();
        assert!(dropped.is_err());
    });
    assert_eq!(std::rc::Rc::strong_count(&message), 2, "leaked");
    s.send(message.clone()).unwrap();
    let mut select = Select::new();
    select.recv(&r);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(select.select())));
    assert!(dropped.is_err());
    assert_eq!(std::rc::Rc::strong_count(&message), 2, "dropped");
}

/// One that stands in front and has no message for whoever comes does not hide those behind
/// it, also from one who will not wait.
#[allow(clippy::diverging_sub_expression, unreachable_code)]
#[test]
fn a_promise_that_is_not_kept_hides_nobody() {
    everywhere(|| {
        let (s, r) = bounded::<u32>(0);
        let (first, second) = (s.clone(), s);
        let named = |name: &str| thread::Builder::new().name(name.into());
        let waits = |who: &str| until(|| heist::debug::dump().contains(who));
        let promises = named("promises").spawn(move || {
            #[allow(clippy::never_loop)]
            loop {
                select! { send(first, break) -> sent => sent.unwrap(), }
            }
        });
        waits("'promises' [select");
        let sends = named("sends").spawn(move || second.send(5));
        waits("'sends' [chan send");
        select! {
            recv(r) -> five => assert_eq!(five, Ok(5)),
            default => panic!("a sender waits"),
        }
        promises.unwrap().join().unwrap();
        sends.unwrap().join().unwrap().unwrap();
    });
}
