//! What others wrote: where crates come from, under which licenses, what is known against them, and who read them.
//!
//! `deny.toml` is the policy. `cargo deny check` follows it, too, where that tool is installed.

#[path = "supply/advisories.rs"]
mod advisories;
#[path = "supply/audits.rs"]
mod audits;
#[path = "supply/licenses.rs"]
mod licenses;
#[path = "supply/policy.rs"]
mod policy;

use std::fmt::Write;
use std::path::PathBuf;

/// The repository.
fn root() -> PathBuf {
    guardrail_tests::root().canonicalize().expect("the repository is there")
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails where a check found something.
#[track_caller]
fn nothing(found: &[String]) {
    let mut text = String::new();
    found.iter().for_each(|line| _ = writeln!(text, "{line}"));
    assert!(text.is_empty(), "\n{text}");
}

#[test]
fn crates_come_from_the_registry_with_checksums() {
    nothing(&policy::elsewhere());
}

#[test]
fn a_crate_has_one_version() {
    nothing(&policy::twice());
}

#[test]
fn dependencies_are_listed_with_licenses_that_fit() {
    nothing(&licenses::misfits());
}

#[test]
fn no_advisory_is_open() {
    nothing(&advisories::open());
}

#[test]
fn unsafe_code_on_untrusted_paths_has_notes() {
    nothing(&audits::stale());
}
