//! Tells the program which commit it is built from: `GUARDRAIL_COMMIT`, as in `0123abcd 2026-11-30`. It is empty outside of a
//! checkout; a package's build may set the variable itself.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-env-changed=GUARDRAIL_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // It gets a line with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let given = std::env::var("GUARDRAIL_COMMIT").ok();
    let commit = given.or_else(|| git(&["log", "-1", "--format=%h %cs", "--abbrev=8"])).unwrap_or_default();
    println!("cargo::rustc-env=GUARDRAIL_COMMIT={commit}");
}
