//! One run of a guest, whose kernel's instructions are counted while it works.

use super::Arguments;
use super::workloads::{Unit, Workload};
use crate::process;
use guardrail_vm::software::Software;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Most seconds that a guest may take.
const LIMIT: u32 = 900;
/// How much longer the fetches of a first run may take.
const FETCHES: Duration = Duration::from_secs(1200);
/// Bytes of a page.
const PAGE: f64 = 4096.0;

/// The results of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Instructions of the kernel for a unit of work, without those of the idle task.
    pub instructions: f64,
    /// The memory of the rights table; `None` where the driver is not guarded.
    pub table: Option<Table>,
}

/// The memory of the rights table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Table {
    /// Bytes of tags, and of the page tables that map them.
    pub bytes: f64,
    /// Bytes that the driver may write.
    pub writable: f64,
}

/// Guards a driver; returns the path of the guarded one.
pub fn guard(arguments: &Arguments, driver: &str, folder: &Path) -> Result<PathBuf, String> {
    let out = folder.join(driver);
    let mut command = process::guardrail()?;
    command
        .args(["guard", driver, "--kernel", &arguments.common.kernel, "--format", "json"])
        .arg("-o")
        .arg(&out);
    let text = finish(command, "guardrail guard")?;
    let summary: Value =
        serde_json::from_str(&text).map_err(|error| format!("its summary is malformed: {error}"))?;
    let file = summary["drivers"][0]["file"].as_str().ok_or("its summary names no file")?;
    Ok(out.join(file))
}

/// Runs a workload on a driver.
pub fn workload(
    arguments: &Arguments,
    workload: &Workload,
    driver: &str,
    software: &Software,
) -> Result<Sample, String> {
    let mut variables: Vec<String> = workload.variables.iter().map(|&variable| variable.to_owned()).collect();
    let _server = if workload.server {
        let port = process::free_port()?;
        variables.push(format!("SERVER_PORT={port}"));
        Some(Server::start(software, port)?)
    } else {
        None
    };
    let mut command = process::guardrail()?;
    command
        .args(["profile", "--driver", driver, "--kernel", &arguments.common.kernel, "--client", "count"])
        .args(["--workload", workload.script, "--from", "work", "--until", "worked"])
        .args([
            "--smp",
            &arguments.common.smp.to_string(),
            "--timeout",
            &LIMIT.to_string(),
            "--format",
            "json",
        ])
        .args(variables.iter().flat_map(|variable| ["--set", variable]));
    if arguments.alone {
        let name = Path::new(driver).file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
        command.arg("--scope").arg(format!("module:{name},guardrail"));
    }
    let text = finish(command, "guardrail profile")?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("its report is malformed: {error}"))?;
    sample(&report, workload.unit)
}

fn finish(mut command: Command, name: &str) -> Result<String, String> {
    let child = process::start(&mut command, name)?;
    let limit = Duration::from_secs(LIMIT.into()) + FETCHES;
    process::finish(child, limit, name, &mut || {})
}

/// `iperf3` on this machine, for one transfer.
struct Server(Child);

impl Server {
    fn start(software: &Software, port: u16) -> Result<Server, String> {
        let mut command = software.command("iperf3").map_err(|error| error.to_string())?;
        command.args(["--server", "--one-off", "--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        process::dies_with_us(&mut command, libc::SIGKILL);
        command.spawn().map(Server).map_err(|error| format!("cannot start iperf3: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads a report.
fn sample(report: &Value, unit: Unit) -> Result<Sample, String> {
    let outcome = report["run"]["outcome"].as_str().unwrap_or_default();
    if outcome != "completed" {
        return Err(format!("the run ended as {outcome}: {}", report["run"]["detail"]));
    }
    let instructions = process::instructions(report).ok_or("nothing was counted")?;
    let moved = numbers(report, "moved-");
    let number = |at: usize| moved.get(at).copied().filter(|number| *number > 0.0);
    let work = match unit {
        Unit::Fixed(work, _) => Some(work),
        Unit::Kib => number(0).map(|bytes| bytes / 1024.0),
        Unit::Packet => number(1).map(|packets| packets - moved.get(2).copied().unwrap_or(0.0)),
    };
    let work = work.filter(|work| *work > 0.0).ok_or("nothing was moved")?;
    let table = match numbers(report, "rights-")[..] {
        [entries, tree, writable] => Some(Table { bytes: (entries + tree) * PAGE, writable }),
        _ => None,
    };
    Ok(Sample { instructions: instructions / work, table })
}

/// The numbers in the name of a step that begins with `head`.
fn numbers(report: &Value, head: &str) -> Vec<f64> {
    let steps = report["run"]["steps"].as_array().into_iter().flatten();
    let name = steps.filter_map(|step| step["name"].as_str()?.strip_prefix(head)).next_back();
    name.into_iter().flat_map(|name| name.split('-')).map(|number| number.parse().unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reports_are_read() {
        let steps = ["work", "moved-2048-10-2", "rights-3-1-512"].map(|name| json!({ "name": name }));
        let report = json!({
            "run": { "outcome": "completed", "steps": steps },
            "clients": [{ "tables": [{
                "columns": ["CPU", "process", "idle task", "all"], "rows": [["0", 1, 1, 2], ["all", 8000, 2000, 10000]],
            }]}],
        });
        let read = |unit| sample(&report, unit).unwrap();
        assert_eq!(read(Unit::Kib).instructions, 4000.0);
        assert_eq!(read(Unit::Packet).instructions, 1000.0);
        assert_eq!(read(Unit::Fixed(4.0, "x")).instructions, 2000.0);
        assert_eq!(read(Unit::Kib).table, Some(Table { bytes: 16384.0, writable: 512.0 }));
        let mut failed = report.clone();
        failed["run"]["outcome"] = "guest-panic".into();
        assert!(sample(&failed, Unit::Kib).is_err());
        assert!(sample(&json!({ "run": { "outcome": "completed" } }), Unit::Kib).is_err());
    }
}
