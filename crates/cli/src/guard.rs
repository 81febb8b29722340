//! `guardrail guard`: drivers that carry their checks in themselves, for a stock kernel on any machine.

mod inspect;
mod machine;
pub mod summary;
pub mod violations;
pub mod workshop;

use crate::args::{GuardArgs, ProfileFormat};
use crate::errors::{CliError, Status, tell};
use crate::files;
use crate::output;
use crate::progress::Progress;
use crate::zoo;
use guardrail_binfmt::ModuleImage;
use guardrail_rewrite::{FIELD, RewriteError};
use guardrail_vm::Cache;
use guardrail_vm::installed::Target;
use guardrail_vm::packages::Packages;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use summary::Summary;
use workshop::{Hardened, Workshop};

/// The runtime's file in every folder of guarded drivers.
const RUNTIME: &str = "guardrail.ko";
/// The description of the folder.
const DESCRIPTION: &str = "guard.json";

/// Guards drivers, or looks at guarded ones, or at what their kernel said.
pub fn run(args: &GuardArgs) -> Result<Status, CliError> {
    if let Some(file) = &args.log {
        return violations::run(file, args.format);
    }
    if args.format == ProfileFormat::Sarif {
        return Err(CliError::Usage(
            "--format sarif is for findings; add --log FILE, or use text or json".into(),
        ));
    }
    if let Some(file) = &args.check {
        return inspect::run(file, args.runtime.as_deref(), args.format);
    }
    let Some(out) = &args.out else { return Err(CliError::Usage("--out says where to".into())) };
    // What can be wrong with the drivers is seen before anything is fetched for them.
    args.drivers.iter().try_for_each(|driver| stock(driver))?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    progress.step(if args.running { "the running kernel" } else { &args.kernel });
    let target = match args.running {
        true => Target::running()?,
        false => Target::find(&packages, &args.kernel)?,
    };
    let plans = args
        .drivers
        .iter()
        .map(|driver| zoo::plan(&packages, &target.kernel, driver))
        .collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    if let Some(twice) = plans.iter().find(|plan| !names.insert(plan.driver.name.as_str())) {
        return Err(CliError::Usage(format!("{} is named twice", twice.driver.name)));
    }
    progress.step("the runtime");
    let workshop =
        Workshop::open(&packages, &target, args.runtime.as_deref(), args.domain)?.trusting(&args.trusted);
    let mut hardened = Vec::new();
    for plan in &plans {
        progress.step(&plan.driver.name);
        hardened.push(workshop.harden(&plan.driver, &plan.before)?);
    }
    unknown_trust(&args.trusted, &hardened)?;
    progress.finish();
    let summary = Summary::new(&workshop, &hardened);
    write(out, &workshop, &hardened, &summary)?;
    if args.running {
        machine::notes(Path::new("/")).iter().for_each(|note| tell("guardrail", note));
    }
    output::text(&match args.format {
        ProfileFormat::Json => String::from_utf8_lossy(&files::json(&summary)?).into_owned(),
        _ => summary.text(out),
    })?;
    Ok(Status::Clean)
}

/// A file that is to be guarded is a stock module; names are looked up later.
fn stock(driver: &str) -> Result<(), CliError> {
    let path = Path::new(driver);
    if !path.is_file() {
        return Ok(());
    }
    let file = fs::read(path).map_err(CliError::io("read", driver))?;
    let image = ModuleImage::parse(driver, file)?;
    if image.info(FIELD).is_some() {
        return Err(RewriteError::Guarded { what: driver.to_owned() }.into());
    }
    match image.name() == "guardrail" {
        true => Err(CliError::Usage(format!(
            "{driver} is what guarded drivers stand on; it is not guarded itself"
        ))),
        false => Ok(()),
    }
}

/// A name of `--trust` that is nowhere is a mistake.
fn unknown_trust(names: &[String], hardened: &[Hardened]) -> Result<(), CliError> {
    let unknown = names.iter().find(|name| hardened.iter().all(|driver| !driver.trusted.contains(*name)));
    unknown.map_or(Ok(()), |name| {
        let drivers: Vec<&str> = hardened.iter().map(|driver| driver.name.as_str()).collect();
        Err(CliError::Usage(format!("--trust {name}: there is no such function in {}", drivers.join(", "))))
    })
}

/// Writes all files, each whole or not at all; the description comes last.
fn write(out: &Path, workshop: &Workshop, hardened: &[Hardened], summary: &Summary) -> Result<(), CliError> {
    fs::create_dir_all(out).map_err(CliError::io("create", out.display()))?;
    files::write(&out.join(RUNTIME), &workshop.runtime)?;
    for driver in hardened {
        files::write(&out.join(format!("{}.ko", driver.name)), &driver.file)?;
    }
    files::write(&out.join(DESCRIPTION), &files::json(summary)?)
}
