//! What tests with guests share.
#![allow(dead_code)]

use libtest_mimic::Failed;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What every trace must satisfy, this one does.
pub fn keeps_the_rules(trace: &str) -> Result<(), Failed> {
    let result = guardrail(&["view", "--check", trace]);
    match result.status {
        0 => Ok(()),
        status => Err(format!("exit status {status}\n{}\n{}", result.stdout, result.stderr).into()),
    }
}

/// The findings of a report.
pub fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

/// What a run of the program printed.
pub struct Checked {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
    report: Option<Value>,
}

impl Checked {
    /// The report, if it printed one.
    pub fn report(&self) -> Result<&Value, Failed> {
        self.report.as_ref().ok_or_else(|| {
            format!("no report; exit status {}\n{}\n{}", self.status, self.stdout, self.stderr).into()
        })
    }
}

/// Runs `guardrail check` and reads its report.
pub fn check(arguments: &[&str]) -> Checked {
    guardrail(&[&["check", "--format", "json"], arguments].concat())
}

/// Runs the program.
pub fn guardrail(arguments: &[&str]) -> Checked {
    let output = Command::new(env!("CARGO_BIN_EXE_guardrail"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Checked {
        status: output.status.code().unwrap_or(-1),
        report: serde_json::from_str(&stdout).ok(),
        stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
