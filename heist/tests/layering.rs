//! The layers of the library: calls go downward only, and only `prim` touches
//! the machine's threads and atomics. Reads the sources and fails on a line that
//! says otherwise.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up; a module may use itself and what stands before it.
const LAYERS: [&[&str]; 7] = [
    &["prim"],
    &["stacks", "timer", "poll"],
    &["context"],
    &["sched"],
    &["obs"],
    &[
        "runtime", "thread", "chan", "sync", "time", "net", "fs", "io", "os", "process", "signal",
        "stack", "local", "panics", "entry", "ops", "par", "lib",
    ],
    &["sim"],
];

/// What only `prim` may name, and why it is spelled here in pieces: this file
/// would find itself.
const MACHINE: [&str; 4] = ["std::sync::atomic", "std::thread", "libc::syscall", "clock_gettime"];

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

/// The lines of code of a file, with their numbers: no comments, no tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_test =
        |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    text.lines()
        .enumerate()
        .take_while(move |(_, line)| !is_test(line))
        .map(|(i, line)| (i + 1, line.trim()))
        .filter(|(_, line)| !line.starts_with("//"))
}

/// The top module that a file belongs to.
fn module(path: &Path) -> String {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let first = path.strip_prefix(src).unwrap().components().next().unwrap();
    first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// The top modules that a line of code names: `crate::a`, and those of `crate::{a, b::{c, d}}`,
/// which stands on one line as long as it is short; longer ones fail.
fn modules_used(line: &str) -> Vec<&str> {
    let name = |text: &'_ str| text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let mut used = Vec::new();
    for rest in line.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            used.push(&rest[..name(rest).unwrap_or(rest.len())]);
            continue;
        };
        let (mut depth, mut start) = (1, 0);
        for (i, c) in list.char_indices() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 0 || (depth == 1 && c == ',') {
                let item = list[start..i].trim();
                used.push(&item[..name(item).unwrap_or(item.len())]);
                start = i + 1;
            }
            if depth == 0 {
                break;
            }
        }
        assert_eq!(depth, 0, "one line for each module, please: {line}");
    }
    used
}

#[test]
fn all_modules_of_a_line_are_seen() {
    assert_eq!(modules_used("use crate::sched::{m, p};"), ["sched"]);
    assert_eq!(modules_used("use crate::{blocking, syscall};"), ["blocking", "syscall"]);
    assert_eq!(modules_used("use crate::{io::{self, fd}, net};"), ["io", "net"]);
    assert_eq!(modules_used("crate::time::now() - crate::sim"), ["time", "sim"]);
    assert!(modules_used("use std::{fs, io};").is_empty());
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

#[test]
fn calls_go_downward_only() {
    let mut upward = Vec::new();
    let mut seen = 0;
    for (path, text) in sources() {
        let own = module(&path);
        let own_layer = layer(&own).unwrap_or_else(|| panic!("{own} has no layer: give it one"));
        for (number, line) in code(&text) {
            for used in modules_used(line) {
                let Some(used_layer) = layer(used) else { continue };
                seen += 1;
                if used_layer > own_layer {
                    upward.push(format!("{}:{number}: {own} uses {used}", path.display()));
                }
            }
        }
    }
    assert!(seen > 100, "the test reads something: {seen}");
    assert!(upward.is_empty(), "upward calls:\n{}", upward.join("\n"));
}

#[test]
fn only_prim_touches_the_machine() {
    let mut found = Vec::new();
    // `sim` is the host of a simulated machine: it runs on the real one.
    let apart = |path: &Path| ["prim", "sim"].contains(&module(path).as_str());
    for (path, text) in sources().into_iter().filter(|(path, _)| !apart(path)) {
        for (number, line) in code(&text) {
            for name in MACHINE.iter().filter(|name| line.contains(**name)) {
                found.push(format!("{}:{number}: {name}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "use crate::prim instead:\n{}", found.join("\n"));
}

/// The scheduler's protocols know no threads, no memory and no clock: that is
/// what makes them fit for a model checker.
#[test]
fn protocols_know_only_atomics() {
    for (path, text) in sources() {
        // A file of models is all test.
        let model = path.ends_with("model.rs");
        if model || !path.components().any(|c| c.as_os_str() == "protocol") {
            continue;
        }
        for (number, line) in code(&text) {
            for used in line.split("crate::prim::").skip(1) {
                let allowed = ["atomic", "hint", "fatal", "latch", "mutant"];
                let allowed = allowed.iter().any(|name| used.starts_with(name));
                assert!(allowed, "{}:{number}: {line}", path.display());
            }
        }
    }
}
