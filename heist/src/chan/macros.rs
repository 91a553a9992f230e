//! `select!` and `select_biased!`.
//!
//! They are the same but for a flag, and both are one macro that reads a case at
//! a time: its head (`@case`), then its body (`@body`), and when all are read
//! writes the program (`@write`). A case that was read is
//!
//! ```text
//! [index] recv (receiver) () -> (pattern) {body}
//! [index] send (sender) (, message) -> (pattern) {body}
//! ```
//!
//! The indices come from a list, one for each case: they are used as the fields
//! of a tuple and as patterns, so they must be literals.

/// Waits for whichever of several channel operations is ready first, does it, and
/// goes on with the body of its case.
///
/// ```
/// use heist::chan::{self, select};
/// use std::time::Duration;
///
/// let (s1, r1) = chan::unbounded();
/// let (s2, r2) = chan::bounded(1);
/// s1.send(10).unwrap();
///
/// // Both are ready: one of them is chosen, at random.
/// select! {
///     recv(r1) -> received => assert_eq!(received, Ok(10)),
///     send(s2, 20) -> sent => {
///         assert_eq!(sent, Ok(()));
///         assert_eq!(r2.recv(), Ok(20));
///     }
///     default(Duration::from_secs(1)) => println!("nothing within a second"),
/// }
/// ```
///
/// - `recv(receiver) -> result => body`: the result is that of
///   [`Receiver::recv`](crate::chan::Receiver::recv), and any pattern.
/// - `send(sender, message) -> result => body`: as
///   [`Sender::send`](crate::chan::Sender::send). The message is made when the
///   case has been chosen, and only then.
/// - `default => body`, `default() => body`: if no case is ready.
/// - `default(timeout) => body`: if none is within that time.
///
/// Cases come in any order, with a comma between them, which a body in braces
/// does not need. There may be 32 of them. An operation is ready when it needs no
/// waiting, also if it will fail since the other side of its channel is gone.
///
/// For operations that are known only at run time see
/// [`Select`](crate::chan::Select). An optional one is had with
/// [`never`](crate::chan::never):
///
/// ```
/// use heist::chan::{self, never, select};
///
/// let (s, r) = chan::unbounded();
/// s.send(1).unwrap();
/// let other: Option<&chan::Receiver<i32>> = None;
/// select! {
///     recv(r) -> received => assert_eq!(received, Ok(1)),
///     recv(other.unwrap_or(&never())) -> _ => unreachable!(),
/// }
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __chan_select {
    ($($tokens:tt)*) => { $crate::__chan_cases!(@begin false $($tokens)*) };
}

/// As [`select!`](crate::chan::select), but of several cases that are ready the
/// first one is chosen.
///
/// ```
/// use heist::chan::{self, select_biased};
///
/// let (s1, r1) = chan::unbounded();
/// let (s2, r2) = chan::unbounded();
/// s1.send("urgent").unwrap();
/// s2.send("the rest").unwrap();
/// select_biased! {
///     recv(r1) -> message => assert_eq!(message, Ok("urgent")),
///     recv(r2) -> _ => unreachable!(),
/// }
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __chan_select_biased {
    ($($tokens:tt)*) => { $crate::__chan_cases!(@begin true $($tokens)*) };
}

/// What both are.
#[doc(hidden)]
#[macro_export]
macro_rules! __chan_cases {
    (@begin $biased:tt) => { ::core::compile_error!("empty `select!` block") };
    (@begin $biased:tt $($tokens:tt)+) => {
        $crate::__chan_cases!(@case
            { $biased {} {} [
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            ] }
            $($tokens)+)
    };

    // All are read.
    (@case { $biased:tt $cases:tt $default:tt $indices:tt }) => {
        $crate::__chan_cases!(@write $biased $cases $default)
    };
    // The heads.
    (@case $read:tt recv($receiver:expr $(,)?) -> $result:pat => $($rest:tt)+) => {
        $crate::__chan_cases!(@body $read { recv ($receiver) () ($result) } $($rest)+)
    };
    (@case $read:tt send($sender:expr, $message:expr $(,)?) -> $result:pat => $($rest:tt)+) => {
        $crate::__chan_cases!(@body $read { send ($sender) (, $message) ($result) } $($rest)+)
    };
    (@case $read:tt default $(())? => $($rest:tt)+) => {
        $crate::__chan_cases!(@body $read { default () } $($rest)+)
    };
    (@case $read:tt default($timeout:expr $(,)?) => $($rest:tt)+) => {
        $crate::__chan_cases!(@body $read { default ($timeout) } $($rest)+)
    };
    // What is wrong with a head that is none of these.
    (@case $read:tt recv($($receiver:tt)*) => $($rest:tt)*) => {
        ::core::compile_error!("expected `-> pattern` after `recv(..)`, found `=>`")
    };
    (@case $read:tt send($($operands:tt)*) => $($rest:tt)*) => {
        ::core::compile_error!("expected `-> pattern` after `send(..)`, found `=>`")
    };
    (@case $read:tt default $(($($timeout:tt)*))? -> $($rest:tt)*) => {
        ::core::compile_error!("expected `=>` after `default`, found `->`")
    };
    (@case $read:tt $case:ident ($($operands:tt)*) $(-> $result:pat)? =>) => {
        ::core::compile_error!("expected an expression after `=>`")
    };
    (@case $read:tt $case:ident ($($operands:tt)*) $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected `recv(receiver) -> pattern => body`, `send(sender, message) -> pattern => \
             body` or `default(timeout) => body`, found `",
            ::core::stringify!($case($($operands)*) $($rest)*), "`"
        ))
    };
    (@case $read:tt $unexpected:tt $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected one of `recv(..)`, `send(..)` or `default`, found `",
            ::core::stringify!($unexpected), "`"
        ))
    };

    // The bodies: a block with and without a comma, and an expression.
    (@body $read:tt $head:tt { $($body:tt)* } , $($rest:tt)*) => {
        $crate::__chan_cases!(@add $read $head { $($body)* } $($rest)*)
    };
    (@body $read:tt $head:tt $body:expr , $($rest:tt)*) => {
        $crate::__chan_cases!(@add $read $head { $body } $($rest)*)
    };
    (@body $read:tt $head:tt { $($body:tt)* } ; $($rest:tt)*) => {
        ::core::compile_error!("expected a comma or the next case after `}`, found `;`")
    };
    (@body $read:tt $head:tt { $($body:tt)* } $case:ident $($rest:tt)*) => {
        $crate::__chan_cases!(@add $read $head { $($body)* } $case $($rest)*)
    };
    (@body $read:tt $head:tt { $($body:tt)* }) => {
        $crate::__chan_cases!(@add $read $head { $($body)* })
    };
    (@body $read:tt $head:tt $body:expr) => {
        $crate::__chan_cases!(@add $read $head { $body })
    };
    (@body $read:tt $head:tt $body:expr ; $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected a comma after `", ::core::stringify!($body), "`, found `;`"
        ))
    };
    (@body $read:tt $head:tt $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "expected an expression and a comma after `=>`, found `", ::core::stringify!($($rest)*), "`"
        ))
    };

    // A case is complete.
    (@add
        { $biased:tt { $($cases:tt)* } $default:tt [ $index:tt $($indices:tt)* ] }
        { $operation:ident ($handle:expr) $message:tt $result:tt } $body:tt $($rest:tt)*
    ) => {
        $crate::__chan_cases!(@case
            { $biased
                { $($cases)* [$index] $operation ($handle) $message -> $result $body }
                $default [ $($indices)* ] }
            $($rest)*)
    };
    (@add
        { $biased:tt $cases:tt $default:tt [] }
        { $operation:ident ($handle:expr) $message:tt $result:tt } $($rest:tt)*
    ) => {
        ::core::compile_error!("too many operations in a `select!` block")
    };
    (@add
        { $biased:tt $cases:tt {} $indices:tt } { default $timeout:tt } $body:tt $($rest:tt)*
    ) => {
        $crate::__chan_cases!(@case { $biased $cases { $timeout $body } $indices } $($rest)*)
    };
    (@add $read:tt { default $timeout:tt } $($rest:tt)*) => {
        ::core::compile_error!("there can be only one `default` case in a `select!` block")
    };

    // The program. The operands are evaluated once each, in order, and what they
    // borrow from lives until the end.
    (@write $biased:tt
        { $([$index:tt] $operation:ident ($handle:expr) ($($message:tt)*) -> ($result:pat) $body:tt)* }
        $default:tt
    ) => {
        match ($(&$handle,)*) {
            _handles => {
                let mut _landing = $crate::chan::internal::Landing::new();
                let mut _cases: [$crate::chan::internal::Case<'_>; _] =
                    [$($crate::chan::internal::Case::$operation(_handles.$index, $index),)*];
                match $crate::__chan_cases!(@run $biased _cases _landing $default) {
                    ::core::option::Option::Some(_chosen) => match _chosen.index() {
                        $($index => {
                            let _completion =
                                $crate::chan::internal::Completion::new(_chosen, &mut _landing);
                            let _result =
                                _completion.$operation(_handles.$index $($message)*);
                            ::core::mem::drop(_landing);
                            let $result = _result;
                            $body
                        })*
                        _ => ::core::unreachable!("a case that does not exist was selected"),
                    },
                    ::core::option::Option::None => {
                        ::core::mem::drop(_landing);
                        $crate::__chan_cases!(@default $default)
                    }
                }
            }
        }
    };
    (@run $biased:tt $cases:ident $landing:ident {}) => {
        $crate::chan::internal::select(&mut $cases, $biased, &mut $landing)
    };
    (@run $biased:tt $cases:ident $landing:ident { () $body:tt }) => {
        $crate::chan::internal::try_select(&mut $cases, $biased, &mut $landing)
    };
    (@run $biased:tt $cases:ident $landing:ident { ($timeout:expr) $body:tt }) => {
        $crate::chan::internal::select_timeout(&mut $cases, $timeout, $biased, &mut $landing)
    };
    (@default {}) => { ::core::unreachable!("a select without a default has waited in vain") };
    (@default { $timeout:tt $body:tt }) => { $body };
}
