//! A sample of the experiment of `guardrail selftest containment`, with real guests.

use std::process::Command;

/// Contained faults do no harm to a disk or the network, also where the machinery fails.
#[test]
fn planted_faults_are_contained() {
    let output = Command::new(guardrail_tests::program())
        .args(["selftest", "containment", "--faults", "4", "--machinery", "3", "--seed", "1", "--jobs", "2"])
        .output()
        .expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}\n{out}");
    assert!(out.contains("Containment holds."), "{out}");
    for upset in ["gate-killed", "device-killed", "log-full"] {
        assert!(out.contains(upset), "{out}");
    }
}
