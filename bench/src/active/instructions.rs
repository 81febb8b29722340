//! Instructions of the kernel for the same work, with the stock driver and with the active one.

use super::Arguments;
use super::loads::LOADS;
use super::table::{Row, Table};
use crate::process;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most seconds that a guest may take.
const LIMIT: u32 = 300;

/// Work that is counted.
struct Work {
    name: &'static str,
    class: &'static str,
    workload: &'static str,
    variables: &'static [&'static str],
    from: &'static str,
    until: &'static str,
}

/// All of it, each for a second or two.
const WORK: [Work; 4] = [
    Work {
        name: "download of 8 MiB",
        class: "network",
        workload: "network",
        variables: &["DOWNLOAD_MB=8", "REQUESTS=0", "UPLOADS=1", "PINGS=1", "UNCHECKED=1"],
        from: "download",
        until: "upload",
    },
    Work {
        name: "upload of 8 MB",
        class: "network",
        workload: "network",
        variables: &["DOWNLOAD_MB=0", "REQUESTS=0", "UPLOADS=4", "PINGS=1"],
        from: "upload",
        until: "ethtool-i",
    },
    Work {
        name: "2048 requests of 64 KiB",
        class: "disk",
        workload: "bench-disk",
        variables: &["MB=32", "ROUNDS=2"],
        from: "work",
        until: "worked",
    },
    Work {
        name: "5 s of sound",
        class: "sound",
        workload: "bench-audio",
        variables: &["SECONDS=5"],
        from: "work",
        until: "worked",
    },
];

/// Counts all of it.
pub fn measure(arguments: &Arguments, modules: &[PathBuf]) -> Result<Table, String> {
    let counts = if arguments.only_try { 1 } else { arguments.counts };
    let mut rows = Vec::new();
    for work in &WORK {
        let load = LOADS.iter().find(|load| load.class == work.class).ok_or("there is no such device")?;
        let name = format!("{}.ko", load.active);
        let active =
            modules.iter().find(|path| path.ends_with(&name)).ok_or(format!("{name} was not built"))?;
        let row = Row::named(&mut rows, work.name);
        for _ in 0..counts {
            row.bases.push(count(arguments, work, Path::new(load.stock), load.device)?);
            row.figures.push(count(arguments, work, active, load.device)?);
        }
    }
    Ok(Table {
        head: format!(
            "instructions of the kernel without its idle task, {}, 1 vCPU, {counts} pairs",
            arguments.kernel
        ),
        base: "stock",
        figure: "active",
        unit: "million",
        rows,
    })
}

/// Millions of instructions of one run.
fn count(arguments: &Arguments, work: &Work, driver: &Path, device: &str) -> Result<f64, String> {
    let mut command = process::guardrail()?;
    command.args(["profile", "--client", "count", "--kernel", &arguments.kernel, "--smp", "1"]);
    command.args(["--format", "json", "--timeout", &LIMIT.to_string(), "--workload", work.workload]);
    command.args(["--from", work.from, "--until", work.until]).arg("--driver").arg(driver);
    command.args(["--device", device]);
    command.args(work.variables.iter().flat_map(|variable| ["--set", variable]));
    let child = process::start(&mut command, "guardrail profile")?;
    let limit = Duration::from_secs(u64::from(LIMIT) + 600);
    let text = process::finish(child, limit, "guardrail profile", &mut || {})?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("its report is malformed: {error}"))?;
    let outcome = report["run"]["outcome"].as_str().unwrap_or_default();
    if outcome != "completed" {
        return Err(format!("{}: the run ended as {outcome}: {}", work.name, report["run"]["detail"]));
    }
    let instructions = process::instructions(&report).ok_or("nothing was counted")?;
    Ok(instructions / 1e6)
}
