//! Spin's verdict of the pump, by its model.

use super::{Driver, RIGHT};
use guardrail_verify::promela::model;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

fn ran(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(folder).output();
    output.unwrap_or_else(|error| panic!("{program} is needed; scripts/setup installs it: {error}"))
}

/// The rules that Spin finds broken.
fn broken(driver: &Driver) -> BTreeSet<u32> {
    let folder = tempfile::tempdir().unwrap();
    let text = model(&driver.program, &driver.charts(), &driver.names).unwrap();
    std::fs::write(folder.path().join("driver.pml"), &text).unwrap();
    let output = ran(folder.path(), "spin", &["-a", "driver.pml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let output = ran(folder.path(), "gcc", &["-O1", "-w", "-DMEMLIM=2048", "-o", "pan", "pan.c"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut rules = BTreeSet::new();
    let claims: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("ltl ")?.split(' ').next()).collect();
    assert!(claims.len() > 8);
    for claim in claims {
        let output = ran(folder.path(), "./pan", &["-a", "-m1000000", "-N", claim]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let whole = !text.contains("Search not completed") && !text.contains("max search depth too small");
        let errors = text.split("errors: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        match errors {
            Some("0") => assert!(whole, "{claim}: {text}"),
            Some(_) => {
                rules.insert(u32::from(claim.as_bytes()[4] - b'0'));
            }
            None => panic!("{claim}: {text}"),
        }
    }
    rules
}

/// A pump that is small enough for Spin, which knows each state by all its numbers.
fn small(definitions: &[&str]) -> Driver {
    Driver::pump(&[definitions, &["SLOTS 2", "TRIES 2"]].concat())
}

fn judged(right: &[&[&str]], bugs: &[u32]) {
    for definitions in right {
        assert_eq!(broken(&small(definitions)), BTreeSet::new(), "{definitions:?}");
    }
    for bug in bugs {
        let driver = small(&[&format!("BUG_{bug}")]);
        assert_eq!(broken(&driver), driver.broken(), "BUG_{bug}");
    }
}

/// Correct drivers keep all rules, and each seeded bug breaks its own.
#[test]
fn spin_gives_the_same_verdict() {
    judged(&[&["HARD_5"]], &[1, 4]);
}

#[test]
#[ignore = "takes minutes"]
fn spin_gives_the_same_verdict_of_all_forms() {
    judged(&RIGHT, &[1, 2, 3, 4, 5, 6]);
}
