//! Chooses the simulated machine for the sources that this package shares with
//! `heist`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=sim");
}
