//! Notes which compiler builds the benchmarks: it is part of what a figure means.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output().ok();
    let version = output.and_then(|output| String::from_utf8(output.stdout).ok());
    println!("cargo::rustc-env=BENCH_RUSTC={}", version.as_deref().map_or("unknown", str::trim));
    println!("cargo::rerun-if-changed=build.rs");
}
