//! A campaign: each mutant in a guest of its own.

use super::folder::{Folder, Line, SCHEMA, Settings, Way, read};
use super::guest::Manner;
use super::oops::Console;
use super::verdict::Verdict;
use super::{mutants, table};
use crate::analyze::digest;
use crate::args::{InjectArgs, ListFormat};
use crate::check::{seconds, variables};
use crate::errors::{CliError, Status, tell};
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::zoo;
use guardrail_inject::{Kind, Subject};
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::Request;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The name of the stock driver among mutants.
const STOCK: &str = "stock";

/// What mutants are called that were not made here.
const GIVEN: &str = "given";

/// A run that is wanted.
struct Planned {
    kind: String,
    name: String,
    file: PathBuf,
    way: Way,
}

/// Makes the mutants, runs those that have not run yet, and prints the table.
pub fn run(
    args: &InjectArgs,
    kinds: &[Kind],
    driver: &str,
    folder: &Folder,
    packages: &Packages,
    signals: &Signals,
    progress: &Progress,
) -> Result<Status, CliError> {
    let request = Request {
        driver,
        more: &[],
        kernel: &args.kernel,
        device: args.device.as_deref(),
        workload: args.workload.as_deref(),
    };
    let prepared = zoo::prepare(packages, request, progress)?;
    let subject = Subject::parse(&args.driver, prepared.plan.driver.bytes.clone())?;
    let manner = Manner {
        prepared: &prepared,
        variables: variables(&args.variables)?,
        smp: args.smp,
        timeout: Duration::from_secs(args.timeout),
    };
    folder.begin(&Settings {
        schema: SCHEMA.to_owned(),
        driver: subject.driver().to_owned(),
        kernel: prepared.kernel.release.clone(),
        stock: digest(subject.stock()),
        device: prepared.choice.device.as_ref().map(|device| device.name.clone()),
        workload: prepared.workload.name.clone(),
        script: digest(prepared.workload.script.as_bytes()),
        variables: manner.variables.clone(),
        smp: args.smp,
        timeout: args.timeout,
    })?;
    let modules = match args.mutants.as_slice() {
        [] => made(args, kinds, &subject, folder, progress)?,
        files => given(files)?,
    };
    progress.finish();

    let campaign = Campaign { folder, manner: &manner, signals, known: folder.lines() };
    let usual = campaign.usual(subject.stock())?;
    let in_way = |(kind, name, file): &(String, String, PathBuf), way| Planned {
        kind: kind.clone(),
        name: name.clone(),
        file: file.clone(),
        way,
    };
    let planned: Vec<Planned> =
        modules.iter().flat_map(|module| Way::ALL.map(|way| in_way(module, way))).collect();
    let (lines, error) = campaign.run(&planned, &usual, args.jobs);
    if let Some(error) = error {
        let left = planned.len() - lines.len();
        tell("guardrail", &format!("{left} runs are left; the same command goes on with them"));
        return Err(error);
    }
    let rows = table::rows(&lines);
    folder.write_table(&table::text(&rows))?;
    output::text(&match args.format {
        ListFormat::Text => table::text(&rows),
        ListFormat::Json => table::json(&rows)?,
    })?;
    match lines.iter().filter(|line| line.judged.verdict == Verdict::Failed).count() {
        0 => Ok(Status::Clean),
        failed => {
            let all = lines.len();
            let why = format!("{failed} of {all} runs failed; the same command does them again");
            Err(CliError::Run(why))
        }
    }
}

/// Mutants that are made now: kind, name and file.
fn made(
    args: &InjectArgs,
    kinds: &[Kind],
    subject: &Subject,
    folder: &Folder,
    progress: &Progress,
) -> Result<Vec<(String, String, PathBuf)>, CliError> {
    let made = mutants(args, kinds, subject, folder, progress)?;
    let names = made.iter().flat_map(|made| made.mutants.iter().map(|mutant| mutant.name()));
    let kinds = made.iter().flat_map(|made| made.mutants.iter().map(|mutant| mutant.kind.name().to_owned()));
    Ok(kinds.zip(names).map(|(kind, name)| (kind, name.clone(), folder.mutant(&name))).collect())
}

/// Mutants that are there: kind, name and file.
fn given(files: &[PathBuf]) -> Result<Vec<(String, String, PathBuf)>, CliError> {
    let one = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".ko"));
        let name = name.filter(|name| !name.is_empty() && *name != STOCK && file.is_file());
        let name = name.ok_or_else(|| {
            CliError::Usage(format!("--mutant {}: there is no such module file", file.display()))
        })?;
        Ok((GIVEN.to_owned(), name.to_owned(), file.clone()))
    };
    files.iter().map(one).collect()
}

struct Campaign<'a> {
    folder: &'a Folder,
    manner: &'a Manner<'a>,
    signals: &'a Signals,
    /// What ran before.
    known: Vec<Line>,
}

impl Campaign<'_> {
    /// The verdict of an earlier run of the same bytes.
    fn known(&self, name: &str, way: Way, digest: &str) -> Option<&Line> {
        let same = |line: &&Line| line.mutant == name && line.way == way && line.digest == digest;
        self.known.iter().rev().filter(same).find(|line| line.judged.verdict != Verdict::Failed)
    }

    /// What the console says while the stock driver does the workload, which it must do without an error.
    fn usual(&self, stock: &[u8]) -> Result<HashSet<String>, CliError> {
        let digest = digest(stock);
        if self.known(STOCK, Way::Plain, &digest).is_some_and(|line| line.judged.verdict == Verdict::None) {
            let file = self.folder.run_folder(STOCK, Way::Plain).join("console.log");
            if let Some(text) = read(&file) {
                return Ok(Console::new(&text).shapes());
            }
        }
        tell("guardrail", "the stock driver …");
        let folder = self.folder.run(STOCK, Way::Plain)?;
        let mut ran =
            self.manner.run(stock.to_vec(), &folder, &HashSet::new(), &|| self.signals.interrupted())?;
        // What the kernel says while nothing is wrong is usual.
        if ran.judged.how == Some(super::verdict::How::Complaint) {
            ran.judged.verdict = Verdict::None;
            ran.judged.how = None;
            ran.judged.why.clear();
        }
        let sound = ran.judged.verdict == Verdict::None;
        let why = ran.judged.why.clone();
        self.folder.add(&Line {
            mutant: STOCK.to_owned(),
            kind: STOCK.to_owned(),
            digest,
            way: Way::Plain,
            judged: ran.judged,
            seconds: seconds(ran.wall),
        })?;
        match sound {
            true => Ok(ran.shapes),
            false => Err(CliError::Run(format!(
                "the stock driver fails with this workload, so mutants would show nothing: {why}"
            ))),
        }
    }

    /// Runs what is wanted; what ended, and why it did not go on.
    fn run(&self, planned: &[Planned], usual: &HashSet<String>, jobs: u8) -> (Vec<Line>, Option<CliError>) {
        let lines: Mutex<Vec<(usize, Line)>> = Mutex::default();
        let failure: Mutex<Option<CliError>> = Mutex::default();
        let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        // A run dies with the thread that started it, so the threads stay until all is done.
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let Some(one) = planned.get(number).filter(|_| !over.load(Ordering::SeqCst)) else { return };
                match self.one(one, usual, (number + 1, planned.len())) {
                    Ok(line) => {
                        lines.lock().unwrap_or_else(|error| error.into_inner()).push((number, line));
                    }
                    Err(error) => {
                        over.store(true, Ordering::SeqCst);
                        failure.lock().unwrap_or_else(|error| error.into_inner()).get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            (0..jobs).for_each(|_| _ = scope.spawn(work));
        });
        let mut lines = lines.into_inner().unwrap_or_else(|error| error.into_inner());
        lines.sort_by_key(|(number, _)| *number);
        let failure = failure.into_inner().unwrap_or_else(|error| error.into_inner());
        (lines.into_iter().map(|(_, line)| line).collect(), failure)
    }

    fn one(
        &self,
        one: &Planned,
        usual: &HashSet<String>,
        (number, all): (usize, usize),
    ) -> Result<Line, CliError> {
        let module = std::fs::read(&one.file).map_err(CliError::io("read", one.file.display()))?;
        let digest = digest(&module);
        if let Some(line) = self.known(&one.name, one.way, &digest) {
            return Ok(line.clone());
        }
        let folder = self.folder.run(&one.name, one.way)?;
        let ran = match one.way {
            Way::Plain => self.manner.run(module, &folder, usual, &|| self.signals.interrupted())?,
        };
        tell("guardrail", &format!("{number}/{all}  {} {}: {}", one.name, one.way.word(), ran.judged));
        let line = Line {
            mutant: one.name.clone(),
            kind: one.kind.clone(),
            digest,
            way: one.way,
            judged: ran.judged,
            seconds: seconds(ran.wall),
        };
        self.folder.add(&line)?;
        Ok(line)
    }
}
