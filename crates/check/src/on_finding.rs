//! The on-finding command of a run (`--on-finding`).

use crate::analysis::wire::ShortFinding;
use guardrail_finding::{Finding, Severity};
use guardrail_host::error::print_line;
use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// The most commands that run at a time; a further finding runs none.
const MAX_COMMANDS: usize = 16;

/// The user's command, which runs once for each finding.
pub struct OnFinding {
    command: Option<String>,
    seen: HashSet<String>,
    running: Vec<(Child, Instant)>,
}

impl OnFinding {
    /// A state in which no command has run yet.
    pub fn new(command: Option<&str>) -> OnFinding {
        OnFinding { command: command.map(str::to_owned), seen: HashSet::new(), running: Vec::new() }
    }

    /// Starts the command for a finding.
    pub fn run(&mut self, found: &ShortFinding) {
        let Some(text) = self.command.clone().filter(|_| self.seen.insert(found.id.clone())) else { return };
        self.reap();
        if self.running.len() >= MAX_COMMANDS {
            return print_line(
                "guardrail",
                &format!("too many hooks are running; none for finding {}", found.id),
            );
        }
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(text)
            .env("GUARDRAIL_FINDING", &found.id)
            .env("GUARDRAIL_CHECKER", &found.checker)
            .env("GUARDRAIL_KIND", &found.kind)
            .env("GUARDRAIL_MESSAGE", &found.message)
            .env("GUARDRAIL_ACTION", &found.action)
            .stdin(Stdio::null())
            // Standard output is reserved for the report.
            .stdout(std::io::stderr())
            .spawn();
        match child {
            Ok(child) => self.running.push((child, Instant::now())),
            Err(error) => {
                print_line("guardrail", &format!("cannot run the hook at finding {}: {error}", found.id))
            }
        }
    }

    /// Runs the command for findings of the end of the run that are no notes. Waits for all that still run, and ends those over
    /// the limit. Waits no further where `stop` says so.
    pub fn finish(&mut self, findings: &[Finding], stop: &dyn Fn() -> bool) {
        for finding in findings.iter().filter(|finding| finding.severity != Severity::Note) {
            self.run(&ShortFinding {
                id: finding.id.clone(),
                checker: finding.checker.clone(),
                kind: finding.kind.clone(),
                message: finding.message.clone(),
                action: finding.action.clone().unwrap_or_default(),
                waits: false,
            });
        }
        while !self.running.is_empty() && !stop() {
            self.reap();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn reap(&mut self) {
        self.running.retain_mut(|(child, since)| match child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                print_line("guardrail", &format!("the hook at a finding failed: {status}"));
                false
            }
            Ok(Some(_)) | Err(_) => false,
            Ok(None) if since.elapsed() > COMMAND_LIMIT => {
                print_line(
                    "guardrail",
                    &format!(
                        "the hook at a finding took more than {} s and was ended",
                        COMMAND_LIMIT.as_secs()
                    ),
                );
                let _ = child.kill();
                let _ = child.wait();
                false
            }
            Ok(None) => true,
        });
    }
}

impl Drop for OnFinding {
    fn drop(&mut self) {
        for (child, _) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
