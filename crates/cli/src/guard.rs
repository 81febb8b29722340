//! `guardrail guard`: drivers that contain their own checks, for a stock kernel on any machine.

use crate::args::{Format, GuardArgs};
use crate::errors::{CliError, Status};
use crate::output::{self, Extent};
use crate::progress::Progress;
use guardrail_campaign::{TryPlan, tryout};
use guardrail_guard::{GuardPlan, violations};
use guardrail_profile::Format as ProfileFormat;
use std::path::Path;

/// Guards drivers, or inspects guarded ones, or prints the violations in a kernel's log.
pub fn run(args: &GuardArgs) -> Result<Status, CliError> {
    if let Some(file) = &args.log {
        let report = violations::of_log(file)?;
        output::report(&report, args.format.into(), Extent::Full)?;
        return Ok(if report.findings.is_empty() { Status::Clean } else { Status::Findings });
    }
    if args.format == ProfileFormat::Sarif {
        return Err(CliError::Usage(
            "--format sarif is for findings; add --log FILE, or use text or json".into(),
        ));
    }
    let json = args.format == ProfileFormat::Json;
    if let Some(file) = &args.check {
        let inspection = guardrail_guard::inspect(file, args.runtime.as_deref())?;
        output::text(&if json { inspection.json()? } else { inspection.text() })?;
        return Ok(if inspection.is_sound() { Status::Clean } else { Status::Findings });
    }
    if args.try_it {
        return compared(args, json);
    }
    let Some(out) = &args.out else { return Err(CliError::Usage("--out says where to".into())) };
    let summary = guardrail_guard::guard(&plan(args, out), &Progress::shown())?;
    output::text(&if json { summary.json()? } else { summary.text(out) })?;
    Ok(Status::Clean)
}

/// Compares the guarded driver with the stock one in a guest. Without `--out` the guarded files are removed.
fn compared(args: &GuardArgs, json: bool) -> Result<Status, CliError> {
    let folder = tempfile::tempdir().map_err(CliError::io("create", "a folder for guarded drivers"))?;
    let tried = tryout::run(&TryPlan {
        guard: plan(args, args.out.as_deref().unwrap_or(folder.path())),
        keep: args.out.is_some(),
        policy: args.policy,
        device: args.device.clone(),
        workload: args.workload.clone(),
        variables: args.variables.clone(),
        parameters: args.parameters.clone(),
        smp: 2,
        memory: 512,
        timeout: args.timeout,
    })?;
    output::text(&if json { tried.json()? } else { tried.text() })?;
    Ok(tried.status())
}

fn plan(args: &GuardArgs, out: &Path) -> GuardPlan {
    GuardPlan {
        drivers: args.drivers.clone(),
        out: out.to_path_buf(),
        kernel: (!args.running).then(|| args.kernel.clone()),
        domain: args.domain,
        trusted: args.trusted.clone(),
        threshold: args.threshold,
        rows: args.rows.clone(),
        runtime: args.runtime.clone(),
        transact: args.transact.as_ref().map(|selected| selected.0.clone()),
    }
}

impl From<ProfileFormat> for Format {
    fn from(format: ProfileFormat) -> Format {
        match format {
            ProfileFormat::Text => Format::Text,
            ProfileFormat::Json => Format::Json,
            ProfileFormat::Sarif => Format::Sarif,
        }
    }
}
