//! `guardrail guard`: drivers that contain their own checks, for a stock kernel on any machine.

use crate::args::{Format, GuardArgs};
use crate::errors::{CliError, Status};
use crate::output::{self, Extent};
use crate::progress::Progress;
use guardrail_campaign::{TryPlan, tryout};
use guardrail_check::{confine, only_reading};
use guardrail_guard::{GuardPlan, runtime_beside, violations};
use guardrail_host::folders::program;
use guardrail_host::process::kill_with_parent;
use guardrail_profile::Format as ProfileFormat;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Guards drivers, or inspects guarded ones, or prints the violations in a kernel's log.
pub fn run(args: &GuardArgs) -> Result<Status, CliError> {
    if let Some(file) = &args.log {
        only_reading([file.as_path()])?;
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
        let runtime = args.runtime.clone().or_else(|| runtime_beside(file));
        only_reading([file.as_path()].into_iter().chain(runtime.as_deref()))?;
        let inspection = guardrail_guard::inspect(file, runtime.as_deref())?;
        output::text(&if json { inspection.json()? } else { inspection.text() })?;
        return Ok(if inspection.is_sound() { Status::Clean } else { Status::Findings });
    }
    let out = args.only_guard.as_deref().or(args.out.as_deref());
    let plan = plan(args, out.unwrap_or(Path::new("")));
    if args.only_refuse {
        only_reading(plan.files().iter().map(PathBuf::as_path))?;
        plan.refuse()?;
        return Ok(Status::Clean);
    }
    if args.only_guard.is_none() {
        if let Some(refused) = refused(&plan)? {
            return Ok(refused);
        }
        if args.try_it {
            return compared(args, json);
        }
    }
    let Some(out) = args.only_guard.as_ref().or(args.out.as_ref()) else {
        return Err(CliError::Usage("--out says where to".into()));
    };
    let summary = guardrail_guard::guard(&plan, &Progress::shown(), &confine)?;
    // The process that compares prints the rest.
    let json = json && args.only_guard.is_none();
    output::text(&if json { summary.json()? } else { summary.text(out) })?;
    Ok(Status::Clean)
}

/// The status of a command whose files are of no use. Another process reads them and says why, since this one still has
/// to fetch and to build what guarding takes.
fn refused(plan: &GuardPlan) -> Result<Option<Status>, CliError> {
    if plan.files().is_empty() {
        return Ok(None);
    }
    let program = program()?;
    let ended = again(&program).arg("--only-refuse").status();
    let status = ended.map_err(CliError::io("start", program.display()))?;
    match status.code() {
        Some(0) => Ok(None),
        Some(code) if code == Status::Usage as i32 => Ok(Some(Status::Usage)),
        _ => Err(CliError::Run("the files that were named cannot be read".into())),
    }
}

/// The command of this process once more.
fn again(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::null());
    kill_with_parent(&mut command);
    command
}

/// Compares the guarded driver with the stock one in a guest. Without `--out` the guarded files are removed.
///
/// Another process guards the driver, since a confined one cannot start guests.
fn compared(args: &GuardArgs, json: bool) -> Result<Status, CliError> {
    let folder = tempfile::tempdir().map_err(CliError::io("create", "a folder for guarded drivers"))?;
    let out = args.out.as_deref().unwrap_or(folder.path());
    let program = program()?;
    let guarded = again(&program).arg("--only-guard").arg(out).stderr(Stdio::inherit()).output();
    let guarded = guarded.map_err(CliError::io("start", program.display()))?;
    match guarded.status.code() {
        Some(0) => {}
        Some(code) if code == Status::Usage as i32 => return Ok(Status::Usage),
        Some(code) if code == Status::RunFailed as i32 => return Ok(Status::RunFailed),
        _ => return Err(CliError::Run("the process that guards the drivers was ended".into())),
    }
    let summary = String::from_utf8_lossy(&guarded.stdout).into_owned();
    let tried = tryout::run(&TryPlan {
        guard: plan(args, out),
        summary: if args.out.is_some() { summary } else { String::new() },
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
