//! Which drivers to guard, and for which kernel.

use crate::selection::{Offer, Selection, Wanted};
use crate::summary::Summary;
use crate::workshop::{Hardened, Workshop};
use crate::{Confine, DESCRIPTION, MAX_FILE, RUNTIME, learn, machine};
use guardrail_binfmt::ModuleImage;
use guardrail_host::error::print_line;
use guardrail_host::{HostError, Progress, files, zoo};
use guardrail_kernel::isolation;
use guardrail_rewrite::{FIELD, RewriteError};
use guardrail_vm::admission;
use guardrail_vm::installed::Target;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::runtime;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Drivers to guard together.
#[derive(Clone, Debug)]
pub struct GuardPlan {
    /// Modules of the kernel by name, module files by path, or `zoo/NAME`.
    pub drivers: Vec<String>,
    /// The folder for the guarded drivers and the runtime.
    pub out: PathBuf,
    /// The kernel by name or path; `None` for the one that this machine runs.
    pub kernel: Option<String>,
    /// The protection domain of all of them, 1 to 14.
    pub domain: u8,
    /// Functions that remain unchecked, and imports that need no rule.
    pub trusted: Vec<String>,
    /// Percent of the imports that must be under a rule, or trusted, for policies other than "log".
    pub threshold: u32,
    /// A file of derived rows for functions without a written row; `None` to leave those without one.
    pub rows: Option<PathBuf>,
    /// The runtime's file; `None` to build it with the kernel's headers.
    pub runtime: Option<PathBuf>,
    /// The entries that are transactions from the start; `None` where none can be.
    pub transact: Option<Vec<Wanted>>,
}

/// The core of active drivers.
const ACTIVE: &str = "guardrail_active";
/// The wrapper whose drivers' rights are not described.
const UNKNOWN: &str = "active_ata";

/// What a plan's files say.
struct Said {
    rows: Option<String>,
    selection: Option<Selection>,
}

impl GuardPlan {
    /// The user's files that are read.
    pub fn files(&self) -> Vec<PathBuf> {
        // A driver is a file or a name.
        let drivers = self.drivers.iter().map(PathBuf::from).filter(|driver| driver.is_file());
        let findings = self.transact.iter().flatten().filter_map(|wanted| match wanted {
            Wanted::Findings(file) => Some(file.clone()),
            Wanted::Pattern(_) => None,
        });
        drivers.chain(findings).chain(self.rows.clone()).collect()
    }

    /// Refuses what is wrong with the user's files, as far as they show it themselves.
    pub fn refuse(&self) -> Result<(), HostError> {
        self.read().map(drop)
    }

    fn read(&self) -> Result<Said, HostError> {
        self.drivers.iter().try_for_each(|driver| stock(driver, self.transact.is_some()))?;
        let rows = self.rows.as_deref().map(learn::text).transpose()?;
        let selection = self.transact.as_deref().map(Selection::read).transpose()?;
        Ok(Said { rows, selection })
    }
}

/// Guards the drivers, and writes them with their runtime and their description to the plan's folder.
///
/// All that is fetched and built is so before `confine` is called, and no file of the user's is read before that.
pub fn guard(plan: &GuardPlan, progress: &Progress, confine: &Confine<'_>) -> Result<Summary, HostError> {
    let cache = guardrail_host::cache()?;
    let packages = Packages::new(&cache);
    progress.step(plan.kernel.as_deref().unwrap_or("the running kernel"));
    let target = match &plan.kernel {
        None => Target::running()?,
        Some(kernel) => Target::find(&packages, kernel)?,
    };
    let drivers = plan.drivers.iter().map(|driver| zoo::provide(&packages, &target.kernel, driver));
    let drivers = drivers.collect::<Result<Vec<_>, _>>()?;
    let modules = Modules::of(&target.kernel, &Parser::here())?;
    let absent = |driver: &&String| !Path::new(driver).is_file() && !modules.has(driver);
    drivers.iter().find(absent).map_or(Ok(()), |driver| modules.plan(driver).map(drop))?;
    progress.step("the runtime");
    let runtime = match &plan.runtime {
        Some(file) => file.clone(),
        None => runtime::ensure_for(&packages, &target)?.module,
    };
    fs::create_dir_all(&plan.out).map_err(HostError::io("create", plan.out.display()))?;
    let notes = plan.kernel.is_none().then(|| machine::notes(Path::new("/")));
    // What a driver needs may be beside it.
    let files = drivers.iter().map(PathBuf::from).filter(|driver| driver.is_file());
    let built = files.filter_map(|driver| Some(driver.canonicalize().ok()?.parent()?.to_path_buf()));
    let kernel = [target.kernel.vmlinuz.clone(), runtime.clone()].into_iter();
    let kernel = kernel.chain(files::linked(&target.kernel.modules));
    let read: Vec<PathBuf> = kernel.chain(built).chain(plan.files()).collect();
    confine(&read, std::slice::from_ref(&plan.out))?;

    let Said { rows, selection } = plan.read()?;
    let found = drivers.iter().map(|driver| modules.plan(driver)).collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    if let Some(twice) = found.iter().find(|plan| !names.insert(plan.driver.name.as_str())) {
        return Err(HostError::Usage(format!("{} is named twice", twice.driver.name)));
    }
    let workshop = Workshop::open(&target, &runtime, plan.domain)?
        .trusting(&plan.trusted)
        .wanting(plan.threshold)
        .transacting(selection.clone());
    let workshop = match plan.rows.as_deref().zip(rows.as_deref()) {
        Some((file, text)) => workshop.with_rows(&file.display().to_string(), text)?,
        None => workshop,
    };
    let mut hardened = Vec::new();
    for one in &found {
        progress.step(&one.driver.name);
        hardened.push(workshop.harden(&one.driver, &one.before)?);
    }
    unknown_trust(&plan.trusted, &hardened)?;
    let offers: Vec<&Offer> = hardened.iter().filter_map(|driver| driver.offer.as_ref()).collect();
    selection.map_or(Ok(()), |selection| selection.check(&offers))?;
    progress.finish();
    let summary = Summary::new(&workshop, &hardened);
    write(&plan.out, &workshop, &hardened, &summary)?;
    notes.iter().flatten().for_each(|note| print_line("guardrail", note));
    Ok(summary)
}

/// Checks that a file to guard is a stock module; names are looked up later.
fn stock(driver: &str, transacts: bool) -> Result<(), HostError> {
    let path = Path::new(driver);
    if !path.is_file() {
        return Ok(());
    }
    let file = files::input(path, MAX_FILE)?;
    let image = ModuleImage::parse(driver, file)?;
    if image.info(FIELD).is_some() {
        return Err(RewriteError::Guarded { what: driver.to_owned() }.into());
    }
    if image.name() == "guardrail" {
        return Err(HostError::Usage(format!(
            "{driver} is what guarded drivers stand on; it is not guarded itself"
        )));
    }
    active(driver, &image, transacts)
}

/// Refuses what is not guarded of active drivers: the core, wrappers, a class, and drivers whose messages are not known.
fn active(driver: &str, image: &ModuleImage, transacts: bool) -> Result<(), HostError> {
    let why = match () {
        () if image.name() == ACTIVE => "it is the core of active drivers, which guarded ones stand on",
        () if !image.depends().any(|name| name == ACTIVE) => return Ok(()),
        () if isolation::protocols(image).is_empty() => {
            "it is no driver but a wrapper, which guarded active drivers stand on"
        }
        () if image.depends().any(|name| name == UNKNOWN) => {
            "the rights of active drivers of disks are not described. Verify it instead, or guard the ordinary driver of the device"
        }
        () if isolation::boxes(image).is_empty() => {
            "it has no debug information, which gives the numbers of its messages"
        }
        () if transacts => "entries of active drivers are no transactions",
        () => return Ok(()),
    };
    Err(HostError::Usage(format!("{driver} cannot be guarded: {why}")))
}

/// A name of `--trust` that no driver defines is an error.
fn unknown_trust(names: &[String], hardened: &[Hardened]) -> Result<(), HostError> {
    let trusts = |driver: &Hardened, name: &String| {
        driver.trusted.contains(name) || driver.border.unannotated.contains(name)
    };
    let unknown = names.iter().find(|&name| !hardened.iter().any(|driver| trusts(driver, name)));
    unknown.map_or(Ok(()), |name| {
        let drivers: Vec<&str> = hardened.iter().map(|driver| driver.name.as_str()).collect();
        Err(HostError::Usage(format!(
            "--trust {name}: there is no such function in {}, and none of this name without a rule is imported",
            drivers.join(", ")
        )))
    })
}

/// Writes all files, each whole or not at all; the description is the last. All drivers are certified.
fn write(
    out: &Path,
    workshop: &Workshop<'_>,
    hardened: &[Hardened],
    summary: &Summary,
) -> Result<(), HostError> {
    files::write(&out.join(RUNTIME), &workshop.runtime)?;
    for driver in hardened {
        files::write(&out.join(format!("{}.ko", driver.name)), &driver.file)?;
        files::write(&out.join(admission::file(&driver.name)), admission::line(&driver.file).as_bytes())?;
    }
    files::write(&out.join(DESCRIPTION), &summary.json()?)
}
