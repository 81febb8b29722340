//! A campaign: each mutant in a guest of its own, unguarded and guarded.

use super::folder::{Folder, Line, Protection, SCHEMA, Settings};
use super::guest::{GuestSettings, Ran, TestModule};
use super::oops::Console;
use super::verdict::{How, Judged, Verdict};
use super::{Ended, Stock, made_apart, table};
use crate::standing::Standing;
use crate::{MutantPlan, jobs};
use guardrail_guard::violations;
use guardrail_guard::{FarWorkshop, Policy};
use guardrail_host::drivers::{digest, seconds, variables};
use guardrail_host::error::print_line;
use guardrail_host::{HostError, Progress, Signals, Status, files, zoo};
use guardrail_vm::installed::Target;
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::runtime;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The name of the stock driver among mutants.
const STOCK: &str = "stock";

/// The protection domain of guarded mutants.
const DOMAIN: u8 = 1;

/// The most violations that are kept in a line.
const MOST_VIOLATIONS: usize = 8;

/// The kind of mutants that were not made here.
const GIVEN: &str = "given";

/// A run to do.
struct Planned {
    kind: String,
    name: String,
    file: PathBuf,
    way: Protection,
}

/// Makes the mutants, runs those that have not run yet, and returns the table.
pub fn run(
    plan: &MutantPlan,
    folder: &Folder,
    packages: &Packages,
    signals: &Signals,
    progress: &Progress,
) -> Result<Ended, HostError> {
    let request = Request {
        driver: &plan.driver,
        kernel: &plan.kernel,
        device: plan.device.as_deref(),
        workload: plan.workload.as_deref(),
        ..Request::default()
    };
    let prepared = zoo::prepare(packages, request, progress)?;
    let chosen = variables(&plan.variables)?;
    prepared.refuse_unread(chosen.iter().map(|(name, _)| name.as_str()))?;
    let stock = stock(&prepared)?;
    places(&plan.with, &prepared.plan.before)?;
    let guest_settings = GuestSettings {
        prepared: &prepared,
        with: plan.with.clone(),
        variables: chosen,
        smp: plan.smp,
        timeout: Duration::from_secs(plan.timeout),
    };
    folder.begin(&Settings {
        schema: SCHEMA.to_owned(),
        driver: prepared.plan.driver.name.clone(),
        with: plan.with.clone(),
        kernel: prepared.kernel.release.clone(),
        stock: digest(&stock),
        device: prepared.choice.device.as_ref().map(|device| device.name.clone()),
        workload: prepared.workload.name.clone(),
        script: digest(prepared.workload.script.as_bytes()),
        variables: guest_settings.variables.clone(),
        smp: plan.smp,
        timeout: plan.timeout,
    })?;
    let modules = match plan.mutants.as_slice() {
        [] => {
            progress.step("mutants");
            let made = made_apart(plan)?.into_iter();
            made.map(|(kind, name)| (kind, name.clone(), folder.mutant(&name))).collect()
        }
        files => given(files)?,
    };
    let guarding = plan.guarded.map(|policy| {
        progress.step("the runtime of guarded drivers");
        let target = Target { kernel: prepared.kernel.clone(), headers: None };
        let built = runtime::ensure_for(packages, &target)?.module;
        let workshop = FarWorkshop::new(&prepared.parser, &prepared.kernel, &built, DOMAIN)?;
        let driver = ModuleFile { bytes: stock.clone(), ..prepared.plan.driver.clone() };
        let original = workshop.harden(&driver, &prepared.plan.before)?;
        let needed = needed(&plan.with, &prepared.plan.before, &workshop)?;
        Ok::<_, HostError>(Guarding { workshop, policy, original, needed })
    });
    let guarding = guarding.transpose()?;
    progress.finish();

    let saved = Default::default();
    let campaign =
        Campaign { folder, guest_settings: &guest_settings, guarding, signals, saved, known: folder.lines() };
    let mut usual = campaign.usual(&stock)?;
    let in_way = |(kind, name, file): &(String, String, PathBuf), way| Planned {
        kind: kind.clone(),
        name: name.clone(),
        file: file.clone(),
        way,
    };
    let plain: Vec<Planned> = modules.iter().map(|module| in_way(module, Protection::Plain)).collect();
    let mut lines = campaign.run(&plain, &usual, plan.jobs)?;
    if plan.guarded.is_some() {
        let wanted = |one: &&(String, String, PathBuf)| {
            let escaped = |line: &Line| line.mutant == one.1 && line.judged.verdict == Verdict::Escaped;
            !plan.escaped || lines.iter().any(escaped)
        };
        let guarded: Vec<Planned> =
            modules.iter().filter(wanted).map(|module| in_way(module, Protection::Guarded)).collect();
        if !guarded.is_empty() {
            usual.extend(campaign.usual_guarded(&stock, &usual)?);
            lines.extend(campaign.run(&guarded, &usual, plan.jobs)?);
        }
    }
    let rows = table::rows(&lines);
    folder.write_table(&table::text(&rows))?;
    if plan.guarded.is_some() {
        campaign.write_violations(&lines)?;
    }
    let failed = lines.iter().filter(|line| line.judged.verdict == Verdict::Failed).count();
    Ok(Ended { rows, runs: lines.len(), failed })
}

/// The stock driver in the form of mutants: without its signature.
fn stock(prepared: &Prepared) -> Result<Vec<u8>, HostError> {
    let driver = &prepared.plan.driver;
    let job = Stock { what: driver.path.display().to_string() };
    let found = prepared.parser.ask(&job, &[], &driver.bytes);
    Ok(found.map_err(|error| error.of(&driver.path, guardrail_vm::Error::BadValue))?.1)
}

/// Mutants that exist already: kind, name and file.
fn given(files: &[PathBuf]) -> Result<Vec<(String, String, PathBuf)>, HostError> {
    let one = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".ko"));
        let name = name.filter(|name| !name.is_empty() && *name != STOCK && file.is_file());
        let name = name.ok_or_else(|| {
            HostError::Usage(format!("--mutant {}: there is no such module file", file.display()))
        })?;
        Ok((GIVEN.to_owned(), name.to_owned(), file.clone()))
    };
    files.iter().map(one).collect()
}

/// The positions of these modules among those that a driver needs.
fn places(names: &[String], before: &[ModuleFile]) -> Result<Vec<usize>, HostError> {
    let one = |name: &String| {
        let place = before.iter().position(|module| module.name == *name);
        place.ok_or_else(|| {
            HostError::Usage(format!("--with {name}: the driver needs no module of that name"))
        })
    };
    names.iter().map(one).collect()
}

/// Guards modules among those that a driver needs.
fn needed(
    names: &[String],
    before: &[ModuleFile],
    workshop: &FarWorkshop,
) -> Result<Vec<ModuleFile>, HostError> {
    let one = |place: usize| {
        let file = workshop.harden(&before[place], &before[..place])?;
        Ok(ModuleFile { bytes: file, ..before[place].clone() })
    };
    places(names, before)?.into_iter().map(one).collect()
}

/// The settings for guarded mutants.
struct Guarding {
    workshop: FarWorkshop,
    policy: Policy,
    /// The guarded driver without bugs.
    original: Vec<u8>,
    /// The modules that the driver needs, guarded as well.
    needed: Vec<ModuleFile>,
}

impl Guarding {
    /// The guarded driver, and the digest of all that it depends on; or why it cannot be guarded.
    fn harden(&self, driver: &ModuleFile, before: &[ModuleFile]) -> Result<(Vec<u8>, String), HostError> {
        let file = self.workshop.harden(driver, before)?;
        let needed = self.needed.iter().map(|module| module.bytes.as_slice());
        let all = [&file[..], &self.workshop.runtime[..]].into_iter().chain(needed);
        let digests = all.map(digest).collect::<Vec<_>>().join("-");
        Ok((file, format!("{digests}-{}", self.policy.word())))
    }

    fn standing(&self) -> Standing<'_> {
        Standing {
            runtime: &self.workshop.runtime,
            policy: self.policy,
            original: &self.original,
            needed: &self.needed,
        }
    }
}

struct Campaign<'a> {
    folder: &'a Folder,
    guest_settings: &'a GuestSettings<'a>,
    guarding: Option<Guarding>,
    signals: &'a Signals,
    /// The saved guests in which runs of each way begin; empty where the device does not let the guest be
    /// saved.
    saved: [OnceLock<Option<PathBuf>>; Protection::ALL.len()],
    /// The runs that had ended in this folder before.
    known: Vec<Line>,
}

impl Drop for Campaign<'_> {
    fn drop(&mut self) {
        for file in self.saved.iter().filter_map(|file| file.get()?.as_ref()) {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Campaign<'_> {
    /// What guarded modules need in the guest; `None` for unguarded ones.
    fn standing(&self, way: Protection) -> Option<Standing<'_>> {
        self.guarding.as_ref().filter(|_| way == Protection::Guarded).map(Guarding::standing)
    }

    /// The saved guest in which runs of a way begin: booting takes longer than most workloads.
    fn saved(&self, way: Protection) -> Option<&Path> {
        let save = || {
            let interrupted = || self.signals.interrupted();
            let folder = self.folder.run("saved", way)?;
            self.guest_settings.save(self.standing(way).as_ref(), &folder, &interrupted)
        };
        let saved = || match save() {
            Ok(file) => Some(file),
            Err(HostError::Interrupted) => None,
            Err(error) => {
                let why = guardrail_host::error::sentence(&error);
                print_line(
                    "warning",
                    &format!("a guest that has booted cannot be saved, so each boots: {why}"),
                );
                None
            }
        };
        self.saved[way as usize].get_or_init(saved).as_deref()
    }

    /// Runs a module in one way.
    fn guest(
        &self,
        module: Vec<u8>,
        way: Protection,
        folder: &Path,
        usual: &HashSet<String>,
    ) -> Result<Ran, HostError> {
        let guest = TestModule { module, standing: self.standing(way), saved: self.saved(way) };
        self.guest_settings.run(guest, folder, usual, &|| self.signals.interrupted())
    }

    /// The verdict of an earlier run of the same bytes.
    fn known(&self, name: &str, way: Protection, digest: &str) -> Option<&Line> {
        let same = |line: &&Line| line.mutant == name && line.way == way && line.digest == digest;
        self.known.iter().rev().filter(same).find(|line| line.judged.verdict != Verdict::Failed)
    }

    /// The console's lines while the stock driver does the workload, which must not fail.
    fn usual(&self, stock: &[u8]) -> Result<HashSet<String>, HostError> {
        let digest = digest(stock);
        if self
            .known(STOCK, Protection::Plain, &digest)
            .is_some_and(|line| line.judged.verdict == Verdict::None)
        {
            let file = self.folder.run_folder(STOCK, Protection::Plain).join("console.log");
            if let Some(text) = files::read(&file) {
                return Ok(Console::new(&text).shapes());
            }
        }
        print_line("guardrail", "the stock driver …");
        let folder = self.folder.run(STOCK, Protection::Plain)?;
        let mut ran = self.guest(stock.to_vec(), Protection::Plain, &folder, &HashSet::new())?;
        without_complaints(&mut ran.judged);
        let sound = ran.judged.verdict == Verdict::None;
        let why = ran.judged.why.clone();
        let shapes = ran.shapes.clone();
        self.folder.add(&line((STOCK, STOCK), Protection::Plain, digest, ran))?;
        match sound {
            true => Ok(shapes),
            false => Err(HostError::Run(format!(
                "the stock driver fails with this workload, so mutants would show nothing: {why}"
            ))),
        }
    }

    /// The console's lines while the guarded stock driver does the workload, which must not cause a violation
    /// that ends anything.
    fn usual_guarded(&self, stock: &[u8], usual: &HashSet<String>) -> Result<HashSet<String>, HostError> {
        let Some(guarding) = &self.guarding else { return Ok(HashSet::new()) };
        let plan = &self.guest_settings.prepared.plan;
        let driver = ModuleFile { bytes: stock.to_vec(), ..plan.driver.clone() };
        let (file, digest) = guarding.harden(&driver, &plan.before)?;
        let folder = self.folder.run_folder(STOCK, Protection::Guarded);
        if self
            .known(STOCK, Protection::Guarded, &digest)
            .is_some_and(|line| line.judged.verdict == Verdict::None)
            && let Some(text) = files::read(&folder.join("console.log"))
        {
            return Ok(Console::new(&text).shapes());
        }
        print_line("guardrail", "the stock driver, guarded …");
        let folder = self.folder.run(STOCK, Protection::Guarded)?;
        let mut ran = self.guest(file, Protection::Guarded, &folder, usual)?;
        without_complaints(&mut ran.judged);
        Folder::write_report(&folder, "report", &ran.report)?;
        let (verdict, why, found) = (ran.judged.verdict, ran.judged.why.clone(), ran.report.found());
        let shapes = ran.shapes.clone();
        self.folder.add(&line((STOCK, STOCK), Protection::Guarded, digest, ran))?;
        match verdict {
            Verdict::None if found > 0 => {
                let places = if found == 1 { "one place".to_owned() } else { format!("{found} places") };
                let what =
                    format!("the stock driver has false violations at {places}; see {}", folder.display());
                print_line("warning", &what);
                Ok(shapes)
            }
            Verdict::None => Ok(shapes),
            _ => Err(HostError::Run(format!(
                "the guarded stock driver fails with this workload, so guarded mutants would show nothing: {why}; \
                 see {}",
                folder.display()
            ))),
        }
    }

    /// Writes all violations of guarded mutants, each place once.
    fn write_violations(&self, lines: &[Line]) -> Result<(), HostError> {
        let mut all: Vec<guardrail_finding::Finding> = Vec::new();
        let guarded = lines.iter().filter(|line| line.way == Protection::Guarded);
        for finding in
            guarded.filter_map(|line| self.folder.report(&line.mutant)).flat_map(|report| report.findings)
        {
            match all.iter_mut().find(|known| known.id == finding.id) {
                Some(known) => known.count += finding.count,
                None => all.push(finding),
            }
        }
        let prepared = self.guest_settings.prepared;
        let (driver, release) = (&prepared.plan.driver.name, &prepared.kernel.release);
        let report = violations::report(driver, release, "completed", all);
        Folder::write_report(self.folder.path(), "violations", &report)
    }

    /// Runs the planned mutants.
    fn run(&self, planned: &[Planned], usual: &HashSet<String>, jobs: u8) -> Result<Vec<Line>, HostError> {
        let one = |number: usize| self.one(&planned[number], usual, (number + 1, planned.len()));
        jobs::run(planned.len(), jobs, one).map_err(|(done, error)| {
            let left = planned.len() - done;
            print_line("guardrail", &format!("{left} runs are left; the same command goes on with them"));
            error
        })
    }

    fn one(
        &self,
        one: &Planned,
        usual: &HashSet<String>,
        (number, all): (usize, usize),
    ) -> Result<Line, HostError> {
        let module = std::fs::read(&one.file).map_err(HostError::io("read", one.file.display()))?;
        let (file, digest) = match (one.way, &self.guarding) {
            (Protection::Guarded, Some(guarding)) => {
                let plan = &self.guest_settings.prepared.plan;
                let driver = ModuleFile { bytes: module.clone(), ..plan.driver.clone() };
                match guarding.harden(&driver, &plan.before) {
                    Ok(guarded) => guarded,
                    Err(error) if error.status() == Status::Usage => {
                        return self.refused(one, digest(&module), &guardrail_host::error::sentence(&error));
                    }
                    Err(error) => return Err(error),
                }
            }
            _ => {
                let digest = digest(&module);
                (module, digest)
            }
        };
        if let Some(line) = self.known(&one.name, one.way, &digest) {
            return Ok(line.clone());
        }
        let folder = self.folder.run(&one.name, one.way)?;
        let mut ran = self.guest(file.clone(), one.way, &folder, usual)?;
        // A message that depends on chance, such as of a link that was late, does not occur each time.
        for _ in 1..COMPLAINTS {
            if ran.judged.how != Some(How::Complaint) {
                break;
            }
            ran = self.guest(file.clone(), one.way, &folder, usual)?;
        }
        if one.way == Protection::Guarded {
            Folder::write_report(&folder, "report", &ran.report)?;
        }
        print_line("guardrail", &format!("{number}/{all}  {} {}: {}", one.name, one.way.word(), ran.judged));
        let line = line((&one.name, &one.kind), one.way, digest, ran);
        self.folder.add(&line)?;
        Ok(line)
    }

    /// A mutant that cannot be guarded.
    fn refused(&self, one: &Planned, digest: String, why: &str) -> Result<Line, HostError> {
        if let Some(line) = self.known(&one.name, one.way, &digest) {
            return Ok(line.clone());
        }
        let (why, step) = (why.to_owned(), "guard".to_owned());
        let judged = Judged { verdict: Verdict::Refused, how: None, why, at: None, step };
        let (report, shapes, wall) = (Default::default(), HashSet::new(), Duration::ZERO);
        let line = line((&one.name, &one.kind), one.way, digest, Ran { judged, report, shapes, wall });
        self.folder.add(&line)?;
        Ok(line)
    }
}

/// So many runs in a row have to print something that the stock driver does not print.
const COMPLAINTS: usize = 3;

/// What the kernel prints while nothing is wrong counts as usual.
fn without_complaints(judged: &mut Judged) {
    if judged.how == Some(How::Complaint) {
        (judged.verdict, judged.how) = (Verdict::None, None);
        judged.why.clear();
    }
}

/// The line of a run of a module, by its name and the kind of its bugs.
fn line((name, kind): (&str, &str), way: Protection, digest: String, ran: Ran) -> Line {
    let place = |finding: &guardrail_finding::Finding| {
        format!("{} in {}+{:#x} [{}]", finding.kind, finding.function, finding.offset, finding.module)
    };
    Line {
        mutant: name.to_owned(),
        kind: kind.to_owned(),
        digest,
        way,
        violations: ran.report.findings.iter().take(MOST_VIOLATIONS).map(place).collect(),
        judged: ran.judged,
        seconds: seconds(ran.wall),
    }
}
