//! Contexts.

use super::*;
use heist::chan::{Receiver, RecvError, RecvTimeoutError, TryRecvError};
use heist::sync::{CancelFunc, mpsc};

const HOUR: Duration = Duration::from_secs(3600);

/// Whether it has ended, and the channel says the same.
fn ended(context: &Context) -> Option<ContextError> {
    let done = context.done().try_recv();
    match context.err() {
        None => assert_eq!(done, Err(TryRecvError::Empty)),
        Some(_) => assert_eq!(done, Err(TryRecvError::Disconnected)),
    }
    context.err()
}

#[test]
fn the_background_does_not_end() {
    everywhere(|| {
        let context = Context::background();
        assert_eq!(ended(&context), None);
        assert_eq!((context.deadline(), context.cause().is_none()), (None, true));
        let short = Duration::from_millis(1);
        assert_eq!(context.done().recv_timeout(short), Err(RecvTimeoutError::Timeout));
    });
}

#[test]
fn a_cancellation_ends_those_below_and_not_those_above() {
    everywhere(|| {
        let (top, cancel_top) = Context::background().with_cancel();
        let (middle, cancel_middle) = top.with_cancel();
        let (bottom, _cancel_bottom) = middle.with_value(1u8).with_cancel();
        let (other, _cancel_other) = top.with_cancel();
        thread::scope(|s| {
            let waiter = s.spawn(|| bottom.done().recv());
            thread::yield_now();
            cancel_middle.cancel();
            assert_eq!(waiter.join().unwrap(), Err(RecvError));
        });
        assert_eq!(ended(&middle), Some(ContextError::Canceled));
        assert_eq!(ended(&bottom), Some(ContextError::Canceled));
        assert_eq!((ended(&top), ended(&other)), (None, None));
        cancel_middle.cancel();
        drop(cancel_top);
        assert_eq!(ended(&other), Some(ContextError::Canceled), "dropped is cancelled");
        let (late, _cancel) = top.with_cancel();
        assert_eq!(ended(&late), Some(ContextError::Canceled), "born after the end");
    });
}

#[test]
fn a_deadline_ends_it() {
    everywhere(|| {
        let begin = Instant::now();
        let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
        let (child, _cancel) = context.with_timeout(Duration::MAX);
        assert_eq!(child.deadline(), context.deadline(), "the earlier counts");
        assert_eq!(child.done().recv(), Err(RecvError));
        assert!(begin.elapsed() >= Duration::from_millis(2));
        assert_eq!(ended(&context), Some(ContextError::DeadlineExceeded));
        assert_eq!(ended(&child), Some(ContextError::DeadlineExceeded));

        let (past, _cancel) = Context::background().with_deadline(begin);
        assert_eq!(ended(&past), Some(ContextError::DeadlineExceeded));
        let (zero, _cancel) = Context::background().with_timeout(Duration::ZERO);
        assert_eq!(ended(&zero), Some(ContextError::DeadlineExceeded));
        let (long, cancel) = Context::background().with_timeout(Duration::from_secs(10_000));
        cancel.cancel();
        assert_eq!(ended(&long), Some(ContextError::Canceled));
    });
}

#[test]
fn texts_are_those_of_go() {
    assert_eq!(ContextError::Canceled.to_string(), "context canceled");
    assert_eq!(ContextError::DeadlineExceeded.to_string(), "context deadline exceeded");
}

#[test]
fn causes_are_handed_down() {
    everywhere(|| {
        let (context, cancel) = Context::background().with_cancel();
        let (child, _cancel) = context.with_cancel();
        assert!(child.cause().is_none());
        cancel.cancel_with(std::io::Error::other("out of paper"));
        cancel.cancel_with(std::io::Error::other("too late"));
        assert_eq!(child.err(), Some(ContextError::Canceled));
        assert_eq!(child.cause().unwrap().to_string(), "out of paper");
        let (plain, cancel) = Context::background().with_cancel();
        cancel.cancel();
        assert_eq!(plain.cause().unwrap().to_string(), "context canceled");
    });
}

#[test]
fn a_cause_of_a_deadline_counts_for_that_alone() {
    everywhere(|| {
        let (cause, short) = (|| Counted::default(), Duration::from_millis(1));
        let background = Context::background();
        let (context, _cancel) = background.with_timeout_cause(short, cause());
        let (child, _cancel_child) = context.with_cancel();
        assert_eq!(child.done().recv(), Err(RecvError));
        assert_eq!(ended(&child), Some(ContextError::DeadlineExceeded));
        assert_eq!(child.cause().unwrap().to_string(), "counted");
        let (past, _cancel) = background.with_deadline_cause(Instant::now(), cause());
        assert_eq!(past.cause().unwrap().to_string(), "counted");
        let (cancelled, cancel) = background.with_timeout_cause(HOUR, cause());
        cancel.cancel();
        assert_eq!(cancelled.cause().unwrap().to_string(), "context canceled");
        let (parent, _cancel) = background.with_timeout(short);
        let (later, _cancel) = parent.with_timeout_cause(HOUR, cause());
        assert_eq!(later.done().recv(), Err(RecvError));
        assert_eq!(later.cause().unwrap().to_string(), "context deadline exceeded");
        let (never, _cancel) = background.with_timeout_cause(Duration::MAX, cause());
        assert_eq!((never.deadline(), ended(&never)), (None, None));
    });
}

#[test]
fn what_is_without_cancel_does_not_end_and_its_children_do() {
    everywhere(|| {
        let (context, cancel) = Context::todo().with_value(1u8).with_timeout(HOUR);
        let free = context.without_cancel();
        let (child, cancel_child) = free.with_cancel();
        cancel.cancel();
        assert_eq!((ended(&free), ended(&child)), (None, None));
        assert_eq!((free.value::<u8>(), free.deadline()), (Some(&1), None));
        assert!(free.cause().is_none());
        cancel_child.cancel();
        assert_eq!((ended(&free), ended(&child)), (None, Some(ContextError::Canceled)));
    });
}

#[test]
fn values_are_found_by_type_and_the_last_one_counts() {
    everywhere(|| {
        let one = Context::background().with_value(1u8).with_value("text");
        let (two, _cancel) = one.with_value(2u8).with_cancel();
        assert_eq!((one.value::<u8>(), two.value::<u8>()), (Some(&1), Some(&2)));
        assert_eq!(two.value::<&str>(), Some(&"text"));
        assert_eq!(two.value::<u16>(), None);
    });
}

#[test]
fn functions_are_called_at_the_end() {
    everywhere(|| {
        let (context, cancel) = Context::background().with_cancel();
        let (sender, receiver) = mpsc::channel();
        let call = |what: &'static str| {
            let sender = sender.clone();
            context.after_func(move || sender.send(what).unwrap())
        };
        let (_called, stopped) = (call("called"), call("stopped"));
        assert!(stopped.stop() && !stopped.stop());
        cancel.cancel();
        assert_eq!(receiver.recv(), Ok("called"));
        let late = call("late");
        assert_eq!(receiver.recv(), Ok("late"));
        assert!(!late.stop());
        drop(sender);
        assert!(receiver.recv().is_err(), "nothing else was called");
    });
}

#[test]
fn long_chains_of_contexts_need_no_stack() {
    everywhere(|| {
        let (first, cancel) = Context::background().with_cancel();
        let mut last = first.clone();
        for i in 0..many(100_000) {
            last = last.with_value(i);
            let (child, cancel) = last.with_cancel();
            cancel.detach();
            last = child;
        }
        cancel.cancel();
        assert!(last.err().is_some());
        drop(first);
        drop(last);
    });
}

#[test]
fn one_that_is_detached_lives_on() {
    everywhere(|| {
        let (parent, cancel_parent) = Context::background().with_cancel();
        let (context, cancel) = parent.with_cancel();
        cancel.detach();
        assert_eq!(ended(&context), None);
        cancel_parent.cancel();
        assert_eq!(ended(&context), Some(ContextError::Canceled));
    });
}

/// What waits for an end need not have the context.
#[test]
fn the_channel_alone_tells_the_end_and_nothing_else() {
    everywhere(|| {
        let begin = Instant::now();
        let time = Duration::from_millis(5);
        let alone = |(context, cancel): (Context, CancelFunc)| {
            cancel.detach();
            context.done().clone()
        };
        let done = alone(Context::background().with_timeout(time));
        assert_eq!(done.recv(), Err(RecvError));
        assert!(begin.elapsed() >= time, "ended after {:?}", begin.elapsed());

        let (parent, cancel) = Context::background().with_cancel();
        let child = alone(parent.with_cancel());
        let grandchild = {
            let (context, cancel) = parent.with_cancel();
            cancel.detach();
            alone(context.with_timeout(Duration::from_secs(10_000)))
        };
        let nobody = alone(Context::background().with_cancel());
        for done in [&child, &grandchild, &nobody] {
            assert_eq!(
                done.recv_timeout(Duration::from_micros(100)),
                Err(RecvTimeoutError::Timeout)
            );
        }
        cancel.cancel();
        assert_eq!((child.recv(), grandchild.recv()), (Err(RecvError), Err(RecvError)));
        assert_eq!(nobody.try_recv(), Err(TryRecvError::Empty), "nothing can end it");
    });
}

#[test]
fn functions_are_called_when_nobody_has_the_context() {
    everywhere(|| {
        let (sender, receiver) = mpsc::channel();
        let call_then = |(context, cancel): (Context, CancelFunc), what: &'static str| {
            cancel.detach();
            let sender = sender.clone();
            drop(context.after_func(move || sender.send(what).unwrap()));
        };
        call_then(Context::background().with_timeout(Duration::from_millis(1)), "deadline");
        assert_eq!(receiver.recv(), Ok("deadline"));
        let (parent, cancel) = Context::background().with_cancel();
        call_then(parent.with_cancel(), "parent");
        cancel.cancel();
        assert_eq!(receiver.recv(), Ok("parent"));
        call_then(Context::background().with_cancel(), "never");
        drop(sender);
        assert!(receiver.recv().is_err(), "what cannot be called is dropped");
    });
}

/// A cause of an end that shows whether anybody has it still.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<()>);

impl Counted {
    /// Waits until this is the only one.
    fn wait_alone(&self) {
        let begin = Instant::now();
        while Arc::strong_count(&self.0) > 1 {
            assert!(begin.elapsed() < Duration::from_secs(20), "somebody has it still");
            thread::sleep(Duration::from_micros(100));
        }
    }
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("counted")
    }
}

impl std::error::Error for Counted {}

/// Those that nobody has, each with a function and its channel in use, below a context.
fn chain_below(first: &Context, owned: &Counted) -> Vec<Receiver<()>> {
    let mut last = first.clone();
    let mut channels = Vec::new();
    for _ in 0..10 {
        let (child, cancel) = last.with_cancel();
        let owned = owned.clone();
        drop(child.after_func(move || drop(owned)));
        channels.push(child.done().clone());
        cancel.detach();
        last = child;
    }
    channels
}

#[test]
fn nothing_is_left_of_contexts_that_have_ended_or_cannot_end() {
    everywhere(|| {
        let (owned, cause) = (Counted::default(), Counted::default());
        let (parent, cancel) = Context::background().with_cancel();
        let channels = chain_below(&parent, &owned);
        assert_eq!(Arc::strong_count(&owned.0), 11);
        cancel.cancel_with(cause.clone());
        channels.iter().for_each(|done| assert_eq!(done.recv(), Err(RecvError)));
        owned.wait_alone();
        drop((parent, cancel));
        cause.wait_alone();

        let (parent, cancel) = Context::background().with_cancel();
        let channels = chain_below(&parent, &owned);
        cancel.detach();
        assert_eq!(Arc::strong_count(&owned.0), 11);
        drop(parent);
        assert_eq!(Arc::strong_count(&owned.0), 1, "nothing can end it");
        channels.iter().for_each(|done| assert_eq!(done.try_recv(), Err(TryRecvError::Empty)));

        // Nor is a timer, or a child in its parent, that nobody waits for.
        let (parent, _cancel) = Context::background().with_cancel();
        let (child, cancel) = parent.with_timeout_cause(HOUR, cause.clone());
        let (grandchild, cancel_grandchild) =
            child.with_timeout_cause(Duration::from_secs(60), cause.clone());
        cancel_grandchild.detach();
        drop(grandchild);
        assert_eq!(Arc::strong_count(&cause.0), 2);
        cancel.detach();
        drop(child);
        assert_eq!(Arc::strong_count(&cause.0), 1);
    });
}

#[test]
fn contexts_come_and_go_while_their_parent_ends() {
    for procs in [1, CROWDED] {
        watched(|| {
            runtime(procs).run(|| {
                for _ in 0..many(100) {
                    let (parent, cancel) = Context::background().with_cancel();
                    thread::scope(|s| {
                        for i in 0..4 {
                            let parent = &parent;
                            s.spawn(move || {
                                while parent.err().is_none() {
                                    let timeout = Duration::from_micros(10 * i);
                                    thread::yield_now();
                                    let (child, _cancel) = parent.with_timeout(timeout);
                                    let _ = child.done().recv_timeout(Duration::from_micros(20));
                                }
                            });
                        }
                        thread::sleep(Duration::from_micros(200));
                        cancel.cancel();
                    });
                    assert_eq!(ended(&parent), Some(ContextError::Canceled));
                }
            });
        });
    }
}
