//! The attribute macros of heist. Programs do not depend on this crate: they
//! write [`#[heist::main]`](macro@main) and [`#[heist::test]`](macro@test),
//! which `heist` re-exports.
//!
//! Both leave the function's outside as it was written and move its body into
//! a function of its own, which `heist` runs as a goroutine:
//!
//! ```text
//! #[heist::main(max_procs = 2)]        fn work() -> R {
//! fn work() -> R {                         fn __heist_body() -> R { body }
//!     body                       ==>       ::heist::__private::main(Some(2), __heist_body)
//! }                                    }
//! ```
//!
//! What a function named `main` and a test return is reported where the body
//! ran, and they return the exit code instead of `R`: `R` need not be `Send`.
//!
//! # Why a nested function, and not a closure
//!
//! A function item may return anything that a function may: `impl Trait` cannot
//! be written as a closure's return type. It takes the body's inner attributes
//! (`#![allow(..)]`), and cannot capture, so nothing has to be asked of what it
//! holds. The price: a body inside an `impl` block cannot say `Self`.
//!
//! # Why no `syn`
//!
//! Whoever uses heist compiles this crate first, and everything else waits for
//! it. What is needed of the function is where its name is, and where the
//! signature stops; all the rest is passed through untouched. That does not pay
//! for a parser of the whole language. It also leaves the crate without
//! dependencies, so `tests/diagnostics.rs` can build it with one call of `rustc`
//! and check each error with its position.

use proc_macro::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};

/// Runs a function's body as a goroutine of the default runtime, and returns
/// what it returns.
///
/// The function is most often `main`, but need not be. `main` may return what a
/// program's `main` may: `Result`, with an error that is not `Send` too, or
/// `ExitCode`. Any other function may return whatever is `Send`. If the body
/// panics, the caller of the function gets that panic, with its
/// payload. A goroutine may call the function too, and waits for it as for any
/// other.
///
/// ```standalone_crate
/// # extern crate self as heist; // heist depends on this crate, so: a stand-in
/// # pub use heist_macros::main;
/// # mod __private { pub fn main<T>(_: Option<usize>, body: impl FnOnce() -> T) -> T { body() } }
/// #[heist::main]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let answer: u8 = "42".parse()?;
///     assert_eq!(answer, 42);
///     Ok(())
/// }
/// ```
///
/// # Arguments
///
/// - `max_procs = n`: how many goroutines may run Rust code at the same time. A
///   constant expression of type `usize`, at least 1. One that has a comma
///   outside of all brackets (`f::<1, 2>()`) has to be put in parentheses.
///
/// ```standalone_crate
/// # extern crate self as heist;
/// # pub use heist_macros::main;
/// # mod __private {
/// #     pub fn main<T>(max_procs: Option<usize>, body: impl FnOnce() -> T) -> T {
/// #         assert_eq!(max_procs, Some(4));
/// #         body()
/// #     }
/// # }
/// const PER_SOCKET: usize = 2;
///
/// #[heist::main(max_procs = 2 * PER_SOCKET)]
/// fn main() {
///     println!("at most four at a time");
/// }
/// ```
///
/// # What does not compile
///
/// A goroutine runs plain blocking code, and nobody is there to hand it
/// arguments: `async`, `const`, `unsafe` and `extern` functions are refused, and
/// those with parameters or generics. In an `impl` block the body has to call
/// the type by its name, not `Self`. And a `max_procs` of zero is refused:
///
/// ```compile_fail,standalone_crate
/// # extern crate self as heist;
/// # pub use heist_macros::main;
/// # mod __private { pub fn main<T>(_: Option<usize>, body: impl FnOnce() -> T) -> T { body() } }
/// #[heist::main(max_procs = 0)] // error: max_procs must be at least 1
/// fn main() {}
/// ```
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Main, args, item)
}

/// Makes a function a test whose body runs as a goroutine of the default
/// runtime.
///
/// It stands in for `#[test]` and goes together with all that `#[test]` goes
/// together with, in any order: `#[should_panic(expected = "..")]`, `#[ignore]`,
/// `#[cfg_attr(..)]`, and a `Result` as the return type. The goroutine carries
/// the test's path as its name.
///
/// It takes the arguments of [`#[heist::main]`](macro@main), and refuses what
/// that refuses. A `#[test]` below it is an error as well: the test would run
/// twice. (So it would with one above, which is gone before this can see it.)
///
/// ```standalone_crate
/// # extern crate self as heist; // heist depends on this crate, so: a stand-in
/// # pub use heist_macros::test;
/// # mod __private {
/// #     pub fn test<T>(_: Option<usize>, _: &'static str, body: impl FnOnce() -> T) -> T { body() }
/// # }
/// #[heist::test]
/// fn parses() -> Result<(), std::num::ParseIntError> {
///     assert_eq!("42".parse::<u8>()?, 42);
///     Ok(())
/// }
///
/// #[heist::test(max_procs = 1)]
/// #[should_panic(expected = "nothing left")]
/// fn panics() {
///     panic!("nothing left");
/// }
/// # fn main() {}
/// ```
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Test, args, item)
}

#[derive(Clone, Copy)]
enum Kind {
    Main,
    Test,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Kind::Main => "heist::main",
            Kind::Test => "heist::test",
        }
    }

    /// What the function becomes; `wrap` has the parts in capitals.
    fn template(self) -> &'static str {
        match self {
            Kind::Main => {
                "HEAD OUTER {
                    fn INNER TAIL BODY
                    ::heist::__private::main(MAX_PROCS, VALUE)
                }"
            }
            Kind::Test => {
                "#[::core::prelude::v1::test]
                HEAD OUTER {
                    fn INNER TAIL BODY
                    ::heist::__private::test(
                        MAX_PROCS,
                        ::core::concat!(::core::module_path!(), \"::\", ::core::stringify!(NAME)),
                        VALUE,
                    )
                }"
            }
        }
    }
}

/// A use of the attribute which does not compile.
struct Misuse {
    span: Span,
    message: String,
}

fn misuse<T>(span: Span, message: impl Into<String>) -> Result<T, Misuse> {
    let message = message.into();
    Err(Misuse { span, message })
}

/// What has to be known of a function to give it another body.
struct Function {
    /// The attributes, the visibility, and `fn name`.
    head: TokenStream,
    name: Ident,
    /// `()`, the return type and the `where` clause. The nested function gets a
    /// copy, so nobody needs to tell them apart.
    tail: TokenStream,
    body: TokenStream,
}

fn expand(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    let expansion = parse_max_procs(args)
        .and_then(|max_procs| Ok(wrap(kind, max_procs, parse_function(kind, item.clone())?)));
    // Beside the error the function stays as it is: without it, each use of its
    // name would be reported too (and a program without `main`).
    expansion.unwrap_or_else(|Misuse { span, message }| {
        let message = TokenTree::Literal(Literal::string(&message)).into();
        let error = fill(span, "::core::compile_error! { MESSAGE }", &[("MESSAGE", message)]);
        TokenStream::from_iter([error, item])
    })
}

/// Writes the function anew, with a body that has the old one run by heist.
fn wrap(kind: Kind, max_procs: TokenStream, function: Function) -> TokenStream {
    let Function { head, name, tail, body } = function;
    // The compiler points at the name of a function that lacks the value which
    // its return type promises: let it point at the user's.
    let inner = fill(name.span(), "__heist_body", &[]);
    // What a program or a test returns need not be `Send` (`Box<dyn Error>` is
    // not), so it must not leave the goroutine's thread: there it becomes the
    // exit code that it stands for, which may. Any other function returns its
    // value, which has to be `Send`.
    let reports = matches!(kind, Kind::Test) || is_word(&name, "main");
    let (outer, value) = if reports && has_return_type(&tail) {
        let value = "|| ::std::process::Termination::report(INNER())";
        (
            fill(Span::call_site(), "() -> ::std::process::ExitCode", &[]),
            fill(Span::call_site(), value, &[("INNER", inner.clone())]),
        )
    } else {
        (tail.clone(), inner.clone())
    };
    fill(
        Span::call_site(),
        kind.template(),
        &[
            ("HEAD", head),
            ("NAME", TokenTree::Ident(name).into()),
            ("OUTER", outer),
            ("VALUE", value),
            ("TAIL", tail),
            ("BODY", body),
            ("INNER", inner),
            ("MAX_PROCS", max_procs),
        ],
    )
}

/// Reads the attribute's arguments; returns an expression of type
/// `Option<usize>`.
fn parse_max_procs(args: TokenStream) -> Result<TokenStream, Misuse> {
    const EXPECTED: &str = "expected `max_procs = n`";

    let mut args: Vec<TokenTree> = visible(args).into_iter().collect();
    if args.is_empty() {
        return Ok(fill(Span::call_site(), "::core::option::Option::None", &[]));
    }
    args.pop_if(|last| is_punct(last, ','));

    let mut found: Option<&[TokenTree]> = None;
    for arg in args.split(|tree| is_punct(tree, ',')) {
        found = match arg {
            [TokenTree::Ident(key), rest @ ..] if is_word(key, "max_procs") => match rest {
                _ if found.is_some() => {
                    let message = format!("`max_procs` is given twice: {EXPECTED} once");
                    return misuse(key.span(), message);
                }
                // The value of a `==` would start with the second `=`.
                [eq, value @ ..]
                    if is_punct(eq, '=')
                        && value.first().is_some_and(|tree| !is_punct(tree, '=')) =>
                {
                    Some(value)
                }
                _ => return misuse(key.span(), EXPECTED),
            },
            [TokenTree::Ident(key), ..] => {
                return misuse(key.span(), format!("unknown argument `{key}`: {EXPECTED}"));
            }
            [other, ..] => return misuse(other.span(), EXPECTED),
            [] => return misuse(Span::call_site(), EXPECTED),
        };
    }
    let Some(value) = found else {
        return misuse(Span::call_site(), EXPECTED);
    };

    let value = TokenStream::from_iter(value.iter().cloned());
    let shown = visible(value.clone());
    let span = shown.clone().into_iter().next().map_or(Span::call_site(), |tree| tree.span());
    // A plain zero gets an error in so many words. Any other constant has to be
    // evaluated first; that the check is an item has `cargo check` do it as well.
    if matches!(shown.to_string().as_str(), "0" | "0usize") {
        return misuse(span, "max_procs must be at least 1");
    }
    let checked = "::core::option::Option::Some({
        const __HEIST_MAX_PROCS: ::core::primitive::usize = VALUE;
        const _: () = ::core::assert!(__HEIST_MAX_PROCS > 0, \"max_procs must be at least 1\");
        __HEIST_MAX_PROCS
    })";
    Ok(fill(span, checked, &[("VALUE", value)]))
}

/// Finds the parts of a function, and refuses one that is not a goroutine's.
fn parse_function(kind: Kind, item: TokenStream) -> Result<Function, Misuse> {
    let this = kind.path();
    let only = |span, what: &str| misuse(span, format!("{this} goes on a function{what}"));
    let trees: Vec<TokenTree> = item.into_iter().collect();
    let mut rest = &trees[..];

    while let [hash, TokenTree::Group(attribute), after @ ..] = rest
        && is_punct(hash, '#')
    {
        if matches!(kind, Kind::Test) && is_test(attribute.stream()) {
            return misuse(
                attribute.span(),
                "second test attribute is supplied, consider removing or changing the order of \
                 your test attributes",
            );
        }
        rest = after;
    }

    // `pub`, `pub(..)`, or a `$vis` of `macro_rules!`, which is there even when
    // it is empty.
    rest = match rest {
        [TokenTree::Ident(word), TokenTree::Group(_), after @ ..] if is_word(word, "pub") => after,
        [TokenTree::Ident(word), after @ ..] if is_word(word, "pub") => after,
        [TokenTree::Group(vis), after @ ..] if vis.delimiter() == Delimiter::None => after,
        _ => rest,
    };

    let name = match rest {
        [TokenTree::Ident(word), TokenTree::Ident(name), after @ ..] if is_word(word, "fn") => {
            rest = after;
            name.clone()
        }
        [TokenTree::Ident(word), ..] => {
            let message = match word.to_string().as_str() {
                "async" => format!("{this} runs plain blocking code: remove `async`"),
                "const" => {
                    format!("{this} starts a goroutine, which no constant can: remove `const`")
                }
                // Who would keep the promise which the body relies on?
                "unsafe" => format!("{this} calls the body from safe code: remove `unsafe`"),
                // Out of `extern "C"` a panic aborts, and it shall be re-raised.
                "extern" => format!(
                    "{this} re-raises panics, for which the ABI must be Rust's: remove `extern`"
                ),
                _ => return only(word.span(), ""),
            };
            return misuse(word.span(), message);
        }
        _ => return only(Span::call_site(), ""),
    };

    let head = &trees[..trees.len() - rest.len()];

    match rest {
        [TokenTree::Group(parameters), ..] if !parameters.stream().is_empty() => {
            only(parameters.span(), " without parameters")
        }
        [TokenTree::Group(_), .., last] => {
            // A `$body:block` of `macro_rules!` comes wrapped.
            let body = visible(last.clone().into());
            match body.clone().into_iter().next() {
                Some(TokenTree::Group(block)) if block.delimiter() == Delimiter::Brace => {
                    let tail = &rest[..rest.len() - 1];
                    let [head, tail] = [head, tail].map(|part| part.iter().cloned().collect());
                    Ok(Function { head, name, tail, body })
                }
                _ => only(name.span(), " with a body"),
            }
        }
        [TokenTree::Punct(open), ..] => only(open.span(), " without generics"),
        _ => only(name.span(), " with a body"),
    }
}

/// Whether an attribute, given what is between its brackets, makes tests:
/// `test`, `core::prelude::v1::test`, `some_crate::test(..)`.
fn is_test(attribute: TokenStream) -> bool {
    let path = visible(attribute)
        .into_iter()
        .take_while(|tree| matches!(tree, TokenTree::Ident(_)) || is_punct(tree, ':'));
    matches!(path.last(), Some(TokenTree::Ident(word)) if is_word(&word, "test"))
}

/// Takes off the invisible brackets in which `macro_rules!` passes on what a
/// fragment (`$body:block`, `$meta:meta`, `$n:expr`) has matched.
fn visible(stream: TokenStream) -> TokenStream {
    let mut trees = stream.clone().into_iter();
    match (trees.next(), trees.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            visible(group.stream())
        }
        _ => stream,
    }
}

/// Whether the tail of a function has a `->`.
fn has_return_type(tail: &TokenStream) -> bool {
    let trees: Vec<TokenTree> = tail.clone().into_iter().collect();
    trees.windows(2).any(|pair| is_punct(&pair[0], '-') && is_punct(&pair[1], '>'))
}

fn is_punct(tree: &TokenTree, char: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == char)
}

fn is_word(ident: &Ident, word: &str) -> bool {
    ident.to_string() == word
}

/// Writes the code in `template`, with the parts in the places of their names.
///
/// The template's own tokens are shown at `span` but belong to the expansion, so
/// that no lint takes them for the user's. The parts keep their spans.
fn fill(span: Span, template: &str, parts: &[(&str, TokenStream)]) -> TokenStream {
    fn replace(span: Span, stream: TokenStream, parts: &[(&str, TokenStream)]) -> TokenStream {
        let filled = stream.into_iter().map(|mut tree| {
            if let TokenTree::Ident(ident) = &tree
                && let Some((_, part)) = parts.iter().find(|(name, _)| is_word(ident, name))
            {
                return part.clone();
            }
            if let TokenTree::Group(group) = &tree {
                let inside = replace(span, group.stream(), parts);
                tree = Group::new(group.delimiter(), inside).into();
            }
            tree.set_span(span);
            tree.into()
        });
        filled.collect()
    }
    let code = template.parse().expect("the templates are Rust");
    replace(Span::call_site().located_at(span), code, parts)
}
