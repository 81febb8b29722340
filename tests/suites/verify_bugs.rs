//! Faults that are seeded into the active drivers: the verifier reports each by its rule, and proves what is right but hard.
//!
//! `tests/fixtures/active/bugs/DRIVER/bugs.txt` has the table, and beside it is a patch for each line.

use guardrail_protocol::stock;
use guardrail_tests::{ensure, root, verified_kernel};
use guardrail_verify::engine::liveness::Duty;
use guardrail_verify::engine::search::{Budget, Wrong};
use guardrail_verify::front::{self, Headers};
use guardrail_verify::ir::Module;
use guardrail_verify::knowledge::Knowledge;
use guardrail_verify::messages::Protocols;
use guardrail_verify::program::{Action, Program, Source};
use guardrail_verify::run::programs;
use guardrail_verify::verdict::{Broken, Decision, Fault, Outcome, decided};
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, kernels};
use libtest_mimic::{Arguments, Failed, Trial};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// When the verifier gives up.
const LIMIT: Duration = Duration::from_secs(300);
/// An ordinary run takes every so many-th of the seeds that have no source in a driver's history.
const SAMPLE: usize = 5;

/// A line of the table.
#[derive(Clone)]
struct Seed {
    /// The folder of the table.
    folder: PathBuf,
    /// Files of `active/`, which the verifier gets.
    sources: Vec<String>,
    /// The patch; empty for the driver as it is.
    patch: String,
    /// The number of a rule; `proved`; or `open` for a driver that keeps all rules but is not proved yet.
    verdict: String,
    /// A message or a state that the report names, or `-`.
    names: String,
    /// Whether it is from no driver's history.
    own: bool,
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("tables and patches agree", agree)];
    for table in tables() {
        let driver = table.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let seeds = match seeds(&table) {
            Ok(seeds) => seeds,
            Err(why) => {
                trials.push(Trial::test(driver, move || Err(why)));
                continue;
            }
        };
        let mut own = 0;
        for seed in seeds {
            own += usize::from(seed.own);
            let left_out = seed.own && own % SAMPLE != 1;
            let name = match (seed.patch.trim_end_matches(".patch"), seed.verdict.as_str()) {
                ("", _) => format!("{driver} keeps all rules"),
                (patch, "proved") => format!("{driver} with {patch} is proved"),
                (patch, "open") => format!("{driver} with {patch} is not proved yet"),
                (patch, rule) => format!("{driver} with {patch} breaks rule {rule}"),
            };
            // What is hard may need other limits with the structures of another kernel.
            if seed.verdict == "proved" && !seed.patch.is_empty() {
                let seed = seed.clone();
                let trial = Trial::test(format!("{name}, with 6.12"), move || judged(&seed, "6.12"));
                trials.push(trial.with_ignored_flag(true));
            }
            let judged = move || judged(&seed, &verified_kernel());
            trials.push(Trial::test(name, judged).with_ignored_flag(left_out));
        }
    }
    // The time of processors is that of the whole process.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// The folders of tables, one for each driver.
fn tables() -> Vec<PathBuf> {
    let all = root().join("tests/fixtures/active/bugs");
    let entries = std::fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.join("bugs.txt").is_file()).collect();
    found.sort();
    found
}

/// Reads a table. Its first seed is the driver as it is.
fn seeds(folder: &Path) -> Result<Vec<Seed>, Failed> {
    let text = std::fs::read_to_string(folder.join("bugs.txt"))?;
    let mut all: Vec<Seed> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if let Some(sources) = line.strip_prefix("sources ") {
            let whole = Seed {
                folder: folder.to_owned(),
                sources: sources.split_whitespace().map(str::to_owned).collect(),
                patch: String::new(),
                verdict: "proved".to_owned(),
                names: "-".to_owned(),
                own: false,
            };
            all.push(whole);
            continue;
        }
        let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [patch, verdict, names, _, source] = fields[..] else {
            return Err(format!("{}: '{line}' has {} fields", folder.display(), fields.len()).into());
        };
        let first = all.first().ok_or("the table does not begin with the sources")?;
        ensure(matches!(verdict, "1" | "2" | "3" | "4" | "5" | "6" | "proved" | "open"), || {
            format!("{patch}: '{verdict}' is no rule")
        })?;
        let own = !source.starts_with('"') && verdict != "proved";
        let seed = Seed {
            patch: patch.to_owned(),
            verdict: verdict.to_owned(),
            names: names.to_owned(),
            own,
            ..first.clone()
        };
        all.push(seed);
    }
    Ok(all)
}

/// Each patch has a line, each line a patch that applies and that changes only what the verifier gets; each rule is broken.
fn agree() -> Result<(), Failed> {
    ensure(!tables().is_empty(), || "there is no table".to_owned())?;
    for table in tables() {
        let seeds = seeds(&table)?;
        let entries = std::fs::read_dir(&table)?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut there: Vec<String> = entries.filter(|name| name.ends_with(".patch")).collect();
        let mut listed: Vec<String> = seeds.iter().skip(1).map(|seed| seed.patch.clone()).collect();
        there.sort();
        listed.sort();
        ensure(there == listed, || {
            format!("{}: {listed:?} are listed, {there:?} are there", table.display())
        })?;
        for seed in &seeds {
            drop(patched(seed)?);
        }
        for rule in ["1", "2", "3", "4", "5", "6"] {
            ensure(seeds.iter().any(|seed| seed.verdict == rule), || {
                format!("{}: no seed breaks rule {rule}", table.display())
            })?;
        }
    }
    Ok(())
}

/// A copy of `active/` with the seed.
fn patched(seed: &Seed) -> Result<tempfile::TempDir, Failed> {
    let folder = tempfile::tempdir()?;
    let copied = Command::new("cp").arg("-r").arg(root().join("active/.")).arg(folder.path()).status()?;
    ensure(copied.success(), || "active/ cannot be copied".to_owned())?;
    if seed.patch.is_empty() {
        return Ok(folder);
    }
    let patch = std::fs::File::open(seed.folder.join(&seed.patch))?;
    let ran = Command::new("patch")
        .args(["-p1", "-s", "-F2", "-d"])
        .arg(folder.path())
        .stdin(Stdio::from(patch))
        .output()?;
    ensure(ran.status.success(), || {
        format!("{} does not apply: {}", seed.patch, String::from_utf8_lossy(&ran.stdout))
    })?;
    Ok(folder)
}

thread_local! {
    /// C files that this thread has translated, by their paths in `active/` and their texts.
    static TRANSLATED: RefCell<HashMap<(String, String), Module>> = RefCell::default();
}

fn module(folder: &Path, source: &str, headers: &Path) -> Result<Module, Failed> {
    let key = (source.to_owned(), std::fs::read_to_string(folder.join(source))?);
    if let Some(module) = TRANSLATED.with_borrow(|all| all.get(&key).cloned()) {
        return Ok(module);
    }
    let folders = ["include", "core", "drivers"].map(|name| folder.join(name));
    let module = front::module(&folder.join(source), &Headers::Kernel(headers.to_owned()), &folders)?;
    TRANSLATED.with_borrow_mut(|all| all.insert(key, module.clone()));
    Ok(module)
}

/// What the verifier reports for a program.
fn reported(
    seed: &Seed,
    modules: &[Module],
    (main, protocols): &(String, String),
    deadline: Instant,
) -> Result<Vec<String>, Failed> {
    let names: Vec<&str> = protocols.split(' ').collect();
    let protocols = Protocols::new(&stock::machines()?, &names)?;
    // As the command has it: all files of the driver's folder are its own, headers too.
    let is_own = |file: &str| std::path::Path::new(file).parent().is_some_and(|at| at.ends_with("drivers"));
    let knowledge = Knowledge::stock();
    let home = modules.iter().position(|module| module.functions.contains_key(main));
    let home = home.ok_or_else(|| format!("{main} is in none of {:?}", seed.sources))?;
    let source = Source {
        modules,
        deep: true,
        main: (home, main.clone()),
        is_own: &is_own,
        knowledge: &knowledge,
        client: None,
    };
    let budget = Budget { deadline, states: 2_000_000, work: usize::MAX };
    let judge = |program: &Program, decision: Decision<'_>| {
        println!("{} {}: {}", seed.patch, main, counts(&decision));
        match &decision.outcome {
            Outcome::Proved => Ok(Vec::new()),
            Outcome::Broken(faults) => {
                Ok(faults.iter().map(|fault| report(program, &protocols, fault)).collect())
            }
            Outcome::Undecided(why) => Err(Failed::from(format!("{main} is not decided: {why}"))),
            Outcome::Refused(why) => Err(Failed::from(format!("{main} is refused: {why}"))),
        }
    };
    decided(&source, &protocols, &budget, judge).map_err(|why| format!("refused: {why}"))?
}

fn judged(seed: &Seed, kernel: &str) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let headers = kernels::headers_tree(&packages, &kernels::find(&packages, kernel)?)?;
    let folder = patched(seed)?;
    let deadline = Instant::now() + LIMIT;
    let began = used();
    let modules = seed.sources.iter().map(|source| module(folder.path(), source, &headers));
    let modules: Vec<Module> = modules.collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    let programs = programs(&modules);
    ensure(!programs.is_empty(), || format!("{:?} have no ACTIVE_PROGRAM", seed.sources))?;
    for program in programs {
        match reported(seed, &modules, &program, deadline) {
            Err(why) if seed.verdict == "open" => all.push(format!("{why:?}")),
            found => all.extend(found?),
        }
    }
    let took = used().saturating_sub(began);
    println!("{} {}: {:.1} s", seed.patch, seed.verdict, took.as_secs_f64());
    match seed.verdict.as_str() {
        "proved" => ensure(all.is_empty(), || format!("reported: {all:#?}")),
        "open" => ensure(!all.is_empty(), || "it is proved by now: write that into the table".to_owned()),
        rule => {
            let meant = |one: &String| one.starts_with(&format!("rule {rule}:")) && has(one, &seed.names);
            ensure(all.iter().any(meant), || format!("rule {rule} with {} is not among {all:#?}", seed.names))
        }
    }
}

/// The time of processors that this process and the programs that it ran have used.
fn used() -> Duration {
    let mut all = Duration::ZERO;
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the structure is large enough for what the kernel writes, and all zeros are a value of it.
        let usage = unsafe {
            libc::getrusage(who, usage.as_mut_ptr());
            usage.assume_init()
        };
        for time in [usage.ru_utime, usage.ru_stime] {
            all += Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64);
        }
    }
    all
}

fn counts(decision: &Decision<'_>) -> String {
    format!(
        "{} states, {} rounds",
        decision.graph.as_ref().map_or(0, |graph| graph.states.len()),
        decision.rounds
    )
}

/// Whether a report names a message `protocol.message`, or a state `protocol.STATE` by a part of its path, or nothing is asked for.
fn has(report: &str, wanted: &str) -> bool {
    let (protocol, part) = wanted.split_once('.').unwrap_or((wanted, ""));
    let words: Vec<&str> = report.split(' ').collect();
    let is_state = |state: &str| part.is_empty() || state.split('.').any(|one| one == part);
    wanted == "-"
        || words.contains(&wanted)
        || words.windows(2).any(|two| two[0] == protocol && is_state(two[1]))
}

/// What a fault says: the rule, the message, and the states of all protocols before it.
fn report(program: &Program, protocols: &Protocols, fault: &Fault) -> String {
    let what = match &fault.rule {
        Broken::Step(Wrong::Emit(number)) => {
            protocols.mail(*number).map_or_else(|why| why, |mail| protocols.name(mail))
        }
        Broken::Step(Wrong::Await(mask)) => {
            let awaited = protocols.all().filter(|(number, _)| *number < 64 && mask >> number & 1 == 1);
            format!("awaits {}", awaited.map(|(_, mail)| protocols.name(mail)).collect::<Vec<_>>().join(" "))
        }
        Broken::Step(Wrong::End(at)) => format!("ends {}", protocols.machines[*at].name()),
        Broken::Step(Wrong::Sleep(name)) => format!("sleeps in {name}"),
        Broken::Step(Wrong::Open) => "sends what is not known".to_owned(),
        Broken::Duty(Duty::Await(mail)) => protocols.name(*mail),
        Broken::Duty(Duty::Leave(at, state)) => {
            format!(
                "stays {} {}",
                protocols.machines[*at].name(),
                protocols.machines[*at].states[*state as usize].name
            )
        }
    };
    let mut states = protocols.start();
    let mut last = String::new();
    for step in &fault.path {
        let number = match &program.edges[step.edge as usize].action {
            Action::Await(..) => step.received.map(u64::from),
            Action::Emit(id) => program.arena.number(*id),
            _ => None,
        };
        let Some(mail) = number.and_then(|number| protocols.mail(number).ok()) else { continue };
        last = protocols.name(mail);
        states = protocols.step(&states, mail).unwrap_or(states);
    }
    let line =
        fault.last.map(|edge| program.location(&program.edges[edge as usize].line)).unwrap_or_default();
    format!(
        "rule {}: {what} , after {last} , in {} , at {line}",
        fault.rule.rule(),
        protocols.describe(&states).join(" , ")
    )
}
