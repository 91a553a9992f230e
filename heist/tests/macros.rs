//! `#[heist::main]` and `#[heist::test]` as a program meets them. What they
//! refuse, and how they say so, is in `heist-macros/tests/diagnostics.rs`.

use std::error::Error;
use std::fmt::Display;
use std::panic::{catch_unwind, panic_any};
use std::process::{Command, ExitCode};

// The one value that any test here asks for. The tests share a process, so two
// which ask for different ones could see each other's.
const PROCS: usize = 2;

#[derive(Debug, PartialEq)]
struct Payload(u32);

fn parse(text: &str) -> Result<u8, std::num::ParseIntError> {
    text.parse()
}

// ---- heist::test: the attributes beside it --------------------------------

#[heist::test]
fn passes() {
    assert_eq!(1 + 1, 2);
}

#[heist::test()]
fn passes_with_empty_arguments() {}

#[should_panic]
#[heist::test]
fn should_panic_before() {
    panic!("of any kind");
}

#[heist::test]
#[should_panic]
fn should_panic_after() {
    panic!("of any kind");
}

#[should_panic(expected = "out of cookies")]
#[heist::test]
fn expected_message_before() {
    panic!("out of cookies");
}

#[heist::test]
#[should_panic(expected = "7 cookies")]
fn expected_message_after() {
    panic!("{} cookies", 3 + 4);
}

#[heist::test]
#[should_panic = "short form"]
fn expected_message_in_short_form() {
    panic!("short form");
}

#[ignore]
#[heist::test]
fn ignored_before() {}

#[heist::test]
#[ignore]
fn ignored_after() {}

#[ignore = "with a reason"]
#[heist::test]
fn ignored_with_reason_before() {}

#[heist::test]
#[ignore = "with a reason"]
fn ignored_with_reason_after() {}

#[cfg_attr(all(), ignore)]
#[heist::test]
fn ignored_by_condition_before() {}

#[heist::test]
#[cfg_attr(all(), ignore = "with a reason")]
fn ignored_by_condition_after() {}

#[heist::test]
#[cfg_attr(any(), ignore)]
fn kept_by_condition() {}

#[cfg_attr(all(), heist::test)]
fn made_by_condition() {}

/// Documented, between attributes.
#[allow(unused_variables)]
#[heist::test]
#[cfg_attr(all(), should_panic(expected = "by condition"))]
#[allow(unused_mut, reason = "the lint level holds for the body as well")]
fn all_together() {
    #![allow(non_snake_case)]
    let mut Unused = ();
    panic!("by condition");
}

mod says_why {
    //! Two tests that fail if they are told to, one of which starts the threads of the other.

    fn told_to() -> bool {
        std::env::var_os("HEIST_TEST_FAILS").is_some()
    }

    #[heist::test]
    fn first() {
        assert!(!told_to(), "the first one's reason");
    }

    #[heist::test]
    fn second() {
        assert!(!told_to(), "the second one's reason");
    }
}

/// Each under its own name, as libtest shows what a test of its own printed.
#[test]
fn a_test_that_fails_says_why() {
    let mut this = Command::new(std::env::current_exe().unwrap());
    this.args(["says_why::", "--test-threads=1"]).env("HEIST_TEST_FAILS", "1");
    let output = this.output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for which in ["first", "second"] {
        let (_, part) = text.split_once(&format!("---- says_why::{which} stdout ----")).unwrap();
        let part = part.split("----").next().unwrap();
        assert!(part.contains(&format!("goroutine 'says_why::{which}'")), "{text}");
        assert!(part.contains(&format!("the {which} one's reason")), "{text}");
    }
}

/// Asks the test binary itself, as a body that fails when it runs would also
/// fail for someone who wants the ignored tests to be run.
#[test]
fn ignored_tests_are_listed_as_ignored() {
    let list = |which: &[&str]| {
        let this = std::env::current_exe().unwrap();
        let output = Command::new(this).args(["--list", "--format=terse"]).args(which).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };

    let mut ignored = list(&["--ignored"]);
    ignored.sort();
    assert_eq!(
        ignored,
        [
            "from_macro_rules::ignored_by_a_meta",
            "ignored_after",
            "ignored_before",
            "ignored_by_condition_after",
            "ignored_by_condition_before",
            "ignored_with_reason_after",
            "ignored_with_reason_before",
        ]
    );

    // Each is one test, not two, whatever else is written on it.
    let all = list(&[]);
    for name in ["passes", "made_by_condition", "all_together", "in_a_module::deeper::passes"] {
        assert_eq!(all.iter().filter(|test| *test == name).count(), 1, "{name} in {all:?}");
    }
}

// ---- heist::test: what it returns, how it panics --------------------------

#[heist::test]
fn question_mark() -> Result<(), Box<dyn Error>> {
    assert_eq!(parse("42")?, 42);
    Ok(())
}

#[heist::test]
fn early_return() -> Result<(), std::num::ParseIntError> {
    if parse("x").is_err() {
        return Ok(());
    }
    parse("x").map(drop)
}

#[heist::test]
fn exit_code() -> ExitCode {
    ExitCode::SUCCESS
}

#[heist::test]
fn impl_termination() -> impl std::process::Termination {
    ExitCode::SUCCESS
}

#[heist::test]
#[should_panic]
fn throws_in_a_test() {
    panic_any(Payload(1));
}

#[test]
fn a_test_keeps_the_payload() {
    let payload = catch_unwind(throws_in_a_test).unwrap_err();
    assert_eq!(*payload.downcast::<Payload>().unwrap(), Payload(1));
}

// ---- max_procs -------------------------------------------------------------

#[heist::test(max_procs = 2)]
fn max_procs_as_a_literal() {
    assert_eq!(heist::runtime::max_procs(), 2);
}

#[heist::test(max_procs = PROCS,)]
fn max_procs_as_a_constant() {
    assert_eq!(heist::runtime::max_procs(), PROCS);
}

#[heist::main(max_procs = { const HALF: usize = PROCS / 2; HALF + HALF })]
fn computed_max_procs() -> usize {
    heist::runtime::max_procs()
}

#[test]
fn max_procs_as_an_expression() {
    assert_eq!(computed_max_procs(), PROCS);
}

// ---- heist::main on other functions ----------------------------------------

#[heist::main]
fn nothing() {}

#[heist::main]
fn number() -> u32 {
    "40 2".split(' ').flat_map(parse).map(u32::from).sum()
}

#[heist::main]
fn exit() -> ExitCode {
    ExitCode::from(3)
}

#[heist::main]
fn shown() -> impl Display + use<> {
    format_args!("{}-{}", 4, 2).to_string()
}

#[heist::main]
fn failing() -> Result<u8, Box<dyn Error + Send + Sync>> {
    let number = parse("x")?;
    Ok(number)
}

/// As a program's: what it returns need not be `Send`, and becomes the code
/// that the process ends with.
mod programs {
    pub(super) mod fails {
        #[heist::main]
        pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
            Err("on purpose".into())
        }
    }

    pub(super) mod succeeds {
        #[heist::main(max_procs = 2)]
        pub(crate) fn main() -> Result<(), std::rc::Rc<str>> {
            Ok(())
        }
    }
}

#[heist::main]
fn with_where_clause() -> Vec<u8>
where
    u8: Copy,
{
    vec![1; 3]
}

#[heist::main(max_procs = 2)]
fn throws() -> u32 {
    panic_any(Payload(7))
}

#[heist::main]
fn never() -> ! {
    panic_any(Payload(8))
}

#[test]
fn values_come_back() {
    nothing();
    assert_eq!(number(), 42);
    assert_eq!(exit(), ExitCode::from(3));
    assert_eq!(shown().to_string(), "4-2");
    assert!(failing().unwrap_err().to_string().contains("invalid digit"));
    assert_eq!(programs::fails::main(), ExitCode::FAILURE);
    assert_eq!(programs::succeeds::main(), ExitCode::SUCCESS);
    assert_eq!(with_where_clause(), [1, 1, 1]);
}

#[test]
fn panics_come_back() {
    let payload = catch_unwind(throws).unwrap_err();
    assert_eq!(*payload.downcast::<Payload>().unwrap(), Payload(7));
    let payload = catch_unwind(|| never()).unwrap_err();
    assert_eq!(*payload.downcast::<Payload>().unwrap(), Payload(8));
}

/// A function with the attribute can be called wherever a function can: by a
/// goroutine too, which waits for it as for any call, and gets its panics.
#[heist::test]
fn nested_in_a_goroutine() {
    #[heist::main]
    fn inner() -> u32 {
        number() + 1
    }

    assert_eq!(inner(), 43);
    let payload = catch_unwind(throws).unwrap_err();
    assert_eq!(*payload.downcast::<Payload>().unwrap(), Payload(7));
    assert_eq!(inner(), 43);
}

struct Program;

impl Program {
    #[heist::main]
    pub(crate) fn run() -> Program {
        Program
    }
}

#[test]
fn in_an_impl_block() {
    let Program = Program::run();
}

// ---- modules ---------------------------------------------------------------

mod in_a_module {
    fn helper() -> u32 {
        5
    }

    #[heist::test]
    fn sees_the_module() {
        assert_eq!(helper(), 5);
        assert_eq!(self::helper(), 5);
        assert_eq!(super::parse("5"), Ok(5));
    }

    pub(super) mod deeper {
        #[heist::test]
        fn passes() {
            assert_eq!(super::helper(), crate::in_a_module::helper());
        }

        #[heist::main]
        pub(in crate::in_a_module) fn restricted() -> u32 {
            super::helper()
        }
    }

    #[heist::test]
    fn keeps_the_visibility() {
        assert_eq!(deeper::restricted(), 5);
    }

    /// Neither does the expansion need what the prelude has.
    mod without_prelude {
        #![no_implicit_prelude]

        #[::heist::test(max_procs = 2)]
        fn passes() {}

        #[::heist::test]
        fn passes_without_arguments() {}
    }
}

// ---- macro_rules! ----------------------------------------------------------

mod from_macro_rules {
    macro_rules! with_block {
        ($($(#[$attr:meta])* $vis:vis $name:ident $body:block)*) => {
            $($(#[$attr])* #[heist::test] $vis fn $name() $body)*
        };
    }

    with_block! {
        block { assert_eq!(2, 1 + 1) }

        /// Documented.
        pub(super) block_with_visibility { assert_eq!(2, 1 + 1) }

        #[ignore]
        ignored_by_a_meta {}

        #[should_panic(expected = "block")]
        block_that_panics { panic!("from a block") }
    }

    macro_rules! with_expr {
        ($name:ident, $max_procs:expr, $value:expr => $expected:expr) => {
            #[heist::test(max_procs = $max_procs)]
            #[allow(unused_variables)]
            fn $name() {
                // Not the `value` that `$value` may name.
                let value = "the macro's own";
                assert_eq!($value, $expected);
            }
        };
    }

    const VALUE: u32 = 4;
    with_expr!(expr, 2, VALUE * 2 => 8);
    with_expr!(expr_with_own_names, super::PROCS, { let value = 5; value + 1 } => 6);

    macro_rules! with_type {
        ($name:ident -> $ret:ty = $body:expr) => {
            #[heist::test]
            fn $name() -> $ret {
                $body
            }
        };
    }

    with_type!(ty -> Result<(), String> = Ok(()));
    with_type!(unit -> () = ());

    macro_rules! with_type_and_block {
        ($vis:vis fn $name:ident() -> $ret:ty $body:block) => {
            #[heist::main]
            $vis fn $name() -> $ret $body
        };
    }

    with_type_and_block! {
        fn text() -> &'static str {
            if VALUE > 3 {
                return "early";
            }
            "late"
        }
    }

    macro_rules! with_item {
        ($($item:item)*) => { $(#[heist::test] $item)* };
    }

    with_item! {
        fn item() {
            assert_eq!(text(), "early");
        }

        #[should_panic(expected = "from an item")]
        fn item_that_panics() {
            panic!("from an item");
        }
    }

    macro_rules! with_tokens {
        ($($tokens:tt)*) => { #[heist::test] $($tokens)* };
    }

    with_tokens! {
        #[should_panic(expected = "from tokens")]
        fn tokens() {
            panic!("from tokens");
        }
    }

    // The name of the test is the macro's, what its body names is too.
    macro_rules! of_its_own {
        ($argument:expr) => {
            #[heist::test]
            fn of_its_own() {
                let hidden = 1;
                assert_eq!(hidden + $argument, 3);
            }
        };
    }

    of_its_own!({
        let hidden = 1;
        hidden + 1
    });
}
