//! What `select!` accepts.

// Forms that no linter would write, on purpose.
#![allow(clippy::manual_unwrap_or, clippy::never_loop, clippy::unnecessary_literal_unwrap)]
#![allow(clippy::redundant_closure_call)]

use super::*;

#[test]
fn blocks_expressions_and_commas() {
    let (s, r) = unbounded::<i32>();
    let never = chan::never::<i32>();
    s.send(1).unwrap();
    // A comma after each, after none, after the last.
    let a = select! {
        recv(r) -> message => message.unwrap(),
        recv(never) -> _ => 0,
    };
    let b = select! { default => 2 };
    let c = select! { default => { 3 } };
    let d = select! { default() => 4, };
    select! {
        recv(never) -> _ => {}
        recv(never) -> _ => { unreachable!() }
        default => {}
    }
    select! {
        default => {},
        recv(never,) -> _ => {},
        send(s, 5,) -> sent => { sent.unwrap() }
    }
    select! {
        recv(never) -> message => assert!(message.is_err()),
        default(Duration::from_millis(1),) => (),
    }
    assert_eq!((a, b, c, d, r.len()), (1, 2, 3, 4, 1));
}

#[test]
fn bodies_of_all_kinds() {
    let (s, r) = unbounded::<i32>();
    (0..10).for_each(|i| s.send(i).unwrap());
    let add = |a, b| a + b;
    let x = select! { recv(r) -> m => add(m.unwrap(), 1) };
    let y = select! { recv(r) -> m => if m == Ok(1) { 5 } else { 6 }, };
    let z = select! { recv(r) -> m => match m { Ok(i) => i, Err(RecvError) => -1 } };
    let w = select! { recv(r) -> m => { m.unwrap() } + 1, default => 0 };
    let v = select! { recv(r) -> m => [m.unwrap(); 2][1], default => 0 };
    assert_eq!((x, y, z, w, v), (1, 5, 2, 4, 4));
    fn early(r: &Receiver<i32>) -> Option<i32> {
        loop {
            select! {
                recv(r) -> m => return m.ok(),
                default => break,
            }
        }
        None
    }
    assert_eq!(early(&r), Some(5));
    fn question(r: &Receiver<i32>) -> Result<i32, RecvError> {
        Ok(select! { recv(r) -> m => m?, default => 0 })
    }
    assert_eq!(question(&r), Ok(6));
}

#[test]
fn patterns_and_operands() {
    struct Both {
        s: Sender<(i32, &'static str)>,
        r: Receiver<(i32, &'static str)>,
        seen: Vec<i32>,
    }
    let (s, r) = unbounded();
    let mut both = Both { s, r, seen: Vec::new() };
    let text = "x";
    select! { send(both.s, (1, text)) -> _ => both.seen.push(0) }
    // The body may have what an operand borrowed.
    select! { recv(both.r) -> m => both.seen.extend(m.map(|(i, _)| i)) }
    assert_eq!(both.seen, [0, 1]);
    both.s.send((2, "y")).unwrap();
    select! { recv(&both.r) -> m => { let Ok((i, _)) = m else { panic!() }; assert_eq!(i, 2) } }
    // Operands are any expression, evaluated once each.
    let mut calls = 0;
    let mut pick = || {
        calls += 1;
        both.r.clone()
    };
    select! { recv(pick()) -> _ => {}, default => {} }
    assert_eq!(calls, 1);
    let shared = Arc::new(both.r.clone());
    select! { recv(shared) -> _ => {}, default => {} }
    let optional: Option<&Receiver<i32>> = None;
    select! { recv(optional.unwrap_or(&chan::never())) -> _m => {}, default => {} }
    // A handle may be moved in the body, and in its own operand.
    let moved = both.r;
    select! {
        recv((move || moved)()) -> _ => {}
        default => {}
    }
}

#[test]
fn results_have_their_types() {
    let (s, r) = bounded(1);
    select! { send(s, 1u8) -> sent => { let _: Result<(), SendError<u8>> = sent; } }
    select! { recv(r) -> got => { let _: Result<u8, RecvError> = got; } }
    let _: i64 = select! { recv(r) -> _ => 1, default => 2 };
}

#[test]
fn through_an_alias_and_from_macros() {
    use heist::chan as ch;
    let (s, r) = ch::unbounded();
    ch::select! { send(s, 1) -> sent => sent.unwrap(), default => unreachable!() }
    macro_rules! first_of {
        ($($r:expr),+) => { ch::select! { $(recv($r) -> message => message,)+ } };
    }
    macro_rules! or_else {
        ($r:expr, $default:expr) => {
            ch::select_biased! { recv($r) -> message => message.unwrap(), default => $default }
        };
    }
    assert_eq!(first_of!(r, ch::never()), Ok(1));
    assert_eq!(or_else!(r, 7), 7);
    // The names inside are the macro's own.
    let (_cases, _chosen, _handles, _landing) = (1, 2, 3, 4);
    s.send(0).unwrap();
    let sum = select! { recv(r) -> m => m.unwrap() + _cases + _chosen + _handles + _landing };
    assert_eq!(sum, 10);
    mod elsewhere {
        // Nothing in scope but the macro, and names of the prelude taken.
        #![allow(dead_code)]
        struct Some;
        struct None;
        struct Ok;
        pub(super) fn poll(r: &heist::chan::Receiver<i32>) -> bool {
            heist::chan::select! { recv(r) -> _ => true, default => false }
        }
    }
    assert!(!elsewhere::poll(&r));
}

#[test]
fn thirty_two_cases() {
    let (s, r) = unbounded();
    s.send(1).unwrap();
    let n = chan::never::<i32>();
    let got = select! {
        recv(n) -> _ => 0, recv(n) -> _ => 1, recv(n) -> _ => 2, recv(n) -> _ => 3,
        recv(n) -> _ => 4, recv(n) -> _ => 5, recv(n) -> _ => 6, recv(n) -> _ => 7,
        recv(n) -> _ => 8, recv(n) -> _ => 9, recv(n) -> _ => 10, recv(n) -> _ => 11,
        recv(n) -> _ => 12, recv(n) -> _ => 13, recv(n) -> _ => 14, recv(n) -> _ => 15,
        recv(n) -> _ => 16, recv(n) -> _ => 17, recv(n) -> _ => 18, recv(n) -> _ => 19,
        recv(n) -> _ => 20, recv(n) -> _ => 21, recv(n) -> _ => 22, recv(n) -> _ => 23,
        recv(n) -> _ => 24, recv(n) -> _ => 25, recv(n) -> _ => 26, recv(n) -> _ => 27,
        recv(n) -> _ => 28, recv(n) -> _ => 29, recv(n) -> _ => 30, recv(r) -> _ => 31,
    };
    assert_eq!(got, 31);
}
