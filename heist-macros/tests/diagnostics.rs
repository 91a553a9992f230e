//! What the attributes refuse: each misuse gets one error, at the token which is
//! wrong. And what they must not do: bring warnings into code that had none.
//!
//! `compile_fail` in the documentation cannot tell one error from another. So
//! this calls `rustc`, which can build this crate in one go as it has no
//! dependencies, with a `heist` made of nothing but the functions that the
//! expansion calls.

use std::io::Write;
use std::process::{Command, Stdio};

const HEIST: &str = "
    pub use heist_macros::{main, test};
    pub mod __private {
        pub fn main<T>(_: Option<usize>, f: impl FnOnce() -> T + 'static) -> T { f() }
        pub fn test<T>(_: Option<usize>, _: &'static str, f: impl FnOnce() -> T + 'static) -> T { f() }
    }
";

/// The `^` stands before the place of the error, and is not part of the source.
const REFUSED: &[(&str, &str)] = &[
    // The arguments.
    (
        "#[heist::main(^threads = 4)] fn f() {}",
        "error: unknown argument `threads`: expected `max_procs = n`",
    ),
    (
        "#[heist::main(max_procs = 1, ^x = 4)] fn f() {}",
        "error: unknown argument `x`: expected `max_procs = n`",
    ),
    ("#[heist::main(^max_procs)] fn f() {}", "error: expected `max_procs = n`"),
    ("#[heist::main(^max_procs =)] fn f() {}", "error: expected `max_procs = n`"),
    ("#[heist::main(^max_procs = , )] fn f() {}", "error: expected `max_procs = n`"),
    ("#[heist::main(^max_procs == 4)] fn f() {}", "error: expected `max_procs = n`"),
    ("#[heist::main(^max_procs(4))] fn f() {}", "error: expected `max_procs = n`"),
    ("#[heist::main(^4)] fn f() {}", "error: expected `max_procs = n`"),
    ("^#[heist::main(,)] fn f() {}", "error: expected `max_procs = n`"),
    ("^#[heist::main(max_procs = 4,,)] fn f() {}", "error: expected `max_procs = n`"),
    (
        "#[heist::test(max_procs = 1, ^max_procs = 1)] fn f() {}",
        "error: `max_procs` is given twice: expected `max_procs = n` once",
    ),
    // The value of max_procs.
    ("#[heist::main(max_procs = ^0)] fn f() {}", "error: max_procs must be at least 1"),
    ("#[heist::test(max_procs = ^0usize,)] fn f() {}", "error: max_procs must be at least 1"),
    (
        "macro_rules! m { ($n:expr) => { #[heist::main(max_procs = $n)] fn f() {} } } m!(^0);",
        "error: max_procs must be at least 1",
    ),
    (
        "#[heist::main(max_procs = ^4 - 2 * 2)] fn f() {}",
        "error[E0080]: evaluation panicked: max_procs must be at least 1",
    ),
    ("#[heist::main(max_procs = ^\"4\")] fn f() {}", "error[E0308]: mismatched types"),
    // The function.
    (
        "#[heist::main] ^async fn f() {}",
        "error: heist::main runs plain blocking code: remove `async`",
    ),
    (
        "#[heist::test] ^async fn f() {}",
        "error: heist::test runs plain blocking code: remove `async`",
    ),
    (
        "#[heist::main] pub(crate) ^async fn f() {}",
        "error: heist::main runs plain blocking code: remove `async`",
    ),
    (
        "#[heist::main] ^const fn f() {}",
        "error: heist::main starts a goroutine, which no constant can: remove `const`",
    ),
    (
        "#[heist::test] ^unsafe fn f() {}",
        "error: heist::test calls the body from safe code: remove `unsafe`",
    ),
    (
        "#[heist::main] pub ^extern \"C\" fn f() {}",
        "error: heist::main re-raises panics, for which the ABI must be Rust's: remove `extern`",
    ),
    ("#[heist::main] fn f^(x: u32) {}", "error: heist::main goes on a function without parameters"),
    (
        "struct S; impl S { #[heist::main] fn f^(&self) {} }",
        "error: heist::main goes on a function without parameters",
    ),
    ("#[heist::test] fn f^<T>() {}", "error: heist::test goes on a function without generics"),
    ("#[heist::main] fn f^<'a>() {}", "error: heist::main goes on a function without generics"),
    ("trait T { #[heist::main] fn ^f(); }", "error: heist::main goes on a function with a body"),
    ("#[heist::main] ^struct S;", "error: heist::main goes on a function"),
    ("#[heist::test] pub ^mod m {}", "error: heist::test goes on a function"),
    // Its attributes.
    (
        "#[heist::test] #^[test] fn f() {}",
        "error: second test attribute is supplied, consider removing or changing the order of \
         your test attributes",
    ),
    (
        "#[heist::test] #[ignore] #^[heist::test(max_procs = 1)] fn f() {}",
        "error: second test attribute is supplied, consider removing or changing the order of \
         your test attributes",
    ),
    (
        "macro_rules! m { ($a:meta) => { #[heist::test] #^[$a] fn f() {} } } m!(test);",
        "error: second test attribute is supplied, consider removing or changing the order of \
         your test attributes",
    ),
    // What the compiler finds wrong is shown where it would be without us.
    ("#[heist::main] fn f() -> u32 { ^\"\" }", "error[E0308]: mismatched types"),
    ("#[heist::main] fn f() -> ^u32 { }", "error[E0308]: mismatched types"),
    ("#[heist::main] fn f() { return ^4; }", "error[E0308]: mismatched types"),
    (
        "#[heist::main] fn f() -> ^Unknown { todo!() }",
        "error[E0425]: cannot find type `Unknown` in this scope",
    ),
];

/// The likes of the above which are right, and more that is easily broken.
const ACCEPTED: &str = r#"
    #![deny(warnings, unused_qualifications, unreachable_pub, let_underscore_drop, unused_results)]
    #![forbid(unsafe_code)]
    #![allow(dead_code)]

    const ZERO: usize = 0;

    #[heist::main] fn no_arguments() {}
    #[heist::main()] fn empty_arguments() {}
    #[heist::main(max_procs = 1)] fn literal() {}
    #[heist::main(max_procs = 0x10_usize,)] fn trailing_comma() {}
    #[heist::main(max_procs = 4 - ZERO)] fn constant() {}
    macro_rules! m { ($n:expr) => { #[heist::main(max_procs = $n)] fn from_macro() {} } } m!(ZERO + 1);
    macro_rules! n { ($a:meta) => { #[heist::main($a)] fn from_meta() {} } } n!(max_procs = 2);

    #[heist::main] fn future() { let _future = async {}; }
    #[heist::main] fn r#unsafe() -> () {}
    #[heist::main] fn early() -> u32 { if ZERO == 0 { return 4; } 5 }
    #[heist::main] fn opaque() -> impl Iterator<Item = u32> + Clone { [1, 2].into_iter() }
    #[heist::main] fn closure() -> impl Fn(u32) -> Box<dyn Fn() -> u32> { |n| Box::new(move || n) }
    #[heist::main] fn never() -> ! { loop {} }
    #[heist::main] fn pointer() -> fn(u32) -> u32 { |n| n }
    #[heist::main] fn array() -> [u8; { const TWO: usize = 2; TWO }] { [1; 2] }
    #[heist::main] fn bounded() -> u32 where u32: Copy, { 3 }
    #[heist::main] #[expect(unused_variables)] fn expectation() { let x = 4; }
    #[heist::main] fn inner_attribute() { #![expect(unused_variables)] let x = 4; }
    #[heist::main] #[test] fn a_test_without_a_name() {}
    trait Provided { #[heist::main] fn provided() -> u32 { 4 } }

    #[heist::test] fn test() {}
    #[heist::test] #[cfg(test)] #[ignore] fn r#fn() -> Result<(), String> { Err("no")?; Ok(()) }
    mod testing { #[heist::test] pub(super) fn test() {} }
"#;

/// One test, not two, so that no two processes build the same files.
#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn refused_and_accepted() {
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs");
    let flags = ["--crate-type=proc-macro", "--crate-name=heist_macros", "--extern=proc_macro"];
    assert_eq!(rustc(flags, Source::File(library)), "");
    let flags = ["--crate-type=lib", "--crate-name=heist", "--extern=heist_macros"];
    assert_eq!(rustc(flags, Source::Text(HEIST)), "");

    let flags = ["--test", "--emit=metadata", "--extern=heist"];
    assert_eq!(rustc(flags, Source::Text(ACCEPTED)), "");

    let flags = ["--test", "--emit=metadata", "--extern=heist", "--cap-lints=allow"];
    let mut wrong = String::new();
    for (marked, message) in REFUSED {
        let column = 1 + marked.find('^').expect("a mark");
        let expected = format!("<anon>:1:{column}: {message}");
        let errors = rustc(flags, Source::Text(&marked.replace('^', "")));
        // The compiler's own errors go on with a label, and its wording changes.
        let own = message.starts_with("error[");
        let after = errors.trim_end().strip_prefix(&expected);
        if !after.is_some_and(|label| label.is_empty() || own && !label.contains('\n')) {
            wrong += &format!("{marked}\nexpected:\n{expected}\nfound:\n{errors}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

enum Source<'a> {
    File(&'a str),
    Text(&'a str),
}

/// Compiles, and returns the diagnostics: a line each, without the summary.
fn rustc<const N: usize>(flags: [&str; N], source: Source<'_>) -> String {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let mut child = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition=2024", "--error-format=short", "--out-dir", directory, "-L", directory])
        .args(flags)
        .arg(if let Source::File(path) = source { path } else { "-" })
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rustc can be called, as it has built this test");
    if let (Source::Text(text), Some(mut stdin)) = (source, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let diagnostics = String::from_utf8(output.stderr).unwrap();
    let summary = |line: &&str| line.starts_with("error: aborting due to");
    diagnostics.split_inclusive('\n').filter(|line| !summary(line)).collect()
}
