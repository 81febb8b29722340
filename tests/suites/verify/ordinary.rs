//! Ordinary drivers: what holds is proved against the most general client, and each seeded fault is reported once.

use super::out;
use guardrail_tests::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/../fixtures/active/ordinary/small.c")
}

/// Verifies the small driver with a fault.
fn verify(folder: &Path, bug: u32, more: &[&str]) -> Output {
    let file = folder.join("small.c");
    let text = std::fs::read_to_string(fixture()).unwrap();
    std::fs::write(&file, format!("#define BUG_{bug}\n{text}")).unwrap();
    Command::new(program()).arg("verify").arg(&file).arg("--no-kernel").args(more).output().unwrap()
}

#[test]
fn a_driver_without_faults_is_proved() {
    let folder = tempfile::tempdir().unwrap();
    let output = verify(folder.path(), 0, &[]);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for name in ["registration", "irq", "napi", "timer", "iomap", "kmalloc", "net_device", "queue_start"] {
        let line = text.lines().find(|line| line.contains(&format!("({name})")));
        assert!(line.is_some_and(|line| line.contains("proved")), "{name}: {text}");
    }
    assert!(text.contains("callbacks run one at a time"), "{text}");
}

#[test]
fn each_fault_is_found() {
    let folder = tempfile::tempdir().unwrap();
    for (bug, kind, words) in [
        (1, "not-released", "kzalloc"),
        (2, "not-released", "mod_timer"),
        (3, "not-released", "napi_enable"),
        (4, "released-twice", "kfree"),
        (5, "not-allowed", "netif_start_queue or one like it"),
        (6, "released-twice", "napi_disable"),
        (7, "not-acquired", "napi_disable"),
        (8, "released-twice", "pci_disable_device"),
        (9, "not-released", "pci_enable_device"),
        (10, "not-released", "register_netdev"),
    ] {
        let output = verify(folder.path(), bug, &[]);
        let text = out(&output);
        assert_eq!(output.status.code(), Some(1), "BUG_{bug}: {text}");
        assert!(text.contains(kind) && text.contains(words), "BUG_{bug}: {text}");
        assert!(text.contains("device.probe"), "BUG_{bug}: {text}");
    }
}

#[test]
fn a_limit_is_not_a_proof() {
    let folder = tempfile::tempdir().unwrap();
    let output = verify(folder.path(), 0, &["--timeout", "0"]);
    assert_eq!(output.status.code(), Some(5), "{}", out(&output));
}

#[test]
fn reports_come_in_all_formats() {
    let folder = tempfile::tempdir().unwrap();
    let output = verify(folder.path(), 9, &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["findings"][0]["kind"], "not-released");
    assert!(json["findings"][0]["location"]["line"].as_u64().unwrap() > 50);
    let output = verify(folder.path(), 9, &["--format", "sarif"]);
    let sarif: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "not-released");
}
