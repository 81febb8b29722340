//! `verify` as a whole: from files to verdicts.

use crate::by_rule;
use crate::certificate::{Certificate, certificate};
use crate::engine::search::Budget;
use crate::findings;
use crate::front::{self, FrontError};
use crate::ir::Module;
use crate::ir::instruction::Value;
use crate::knowledge::Knowledge;
use crate::messages::Protocols;
use crate::program::{Program, Source, translate};
use crate::promela;
use crate::recheck;
use crate::sequence;
use crate::verdict::{Decision, Outcome, decided};
pub use crate::verified::Verified;
use guardrail_protocol::Machine;
use guardrail_protocol::model::Protocol;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// What begins the name of the constant with a program's protocols.
const MARK: &str = "active_program_";
/// The most states of one search.
const STATES: usize = 4_000_000;

/// What is verified.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The C files.
    pub files: Vec<PathBuf>,
    /// The text that clang wrote for each, from [`Sources::translate`](front::Sources::translate).
    pub texts: Vec<String>,
    /// The protocols, whose messages are numbered in this order.
    pub machines: Vec<Machine>,
    /// The main function and its protocols, where the files do not say them.
    pub main: Option<(String, String)>,
    /// Seconds for each program.
    pub seconds: u64,
    /// Certificates that are checked instead of a search; none for a search.
    pub check: Option<Vec<Certificate>>,
    /// Whether the obligations of certificates are written in SMT-LIB 2.
    pub script: bool,
    /// Whether programs are written as models for Spin, instead of a search.
    pub model: bool,
    /// Whether each rule is decided by itself.
    pub by_rule: bool,
}

fn refuse<T>(text: impl Into<String>) -> Result<T, FrontError> {
    Err(FrontError::Other(text.into()))
}

/// Verifies all programs in the files. `stop` is asked between steps.
pub fn run(plan: &Plan, stop: &dyn Fn() -> bool) -> Result<Vec<Verified>, FrontError> {
    let modules = plan.files.iter().zip(&plan.texts).map(|(file, text)| front::read(file, text));
    let modules = modules.collect::<Result<Vec<_>, _>>()?;
    let programs = match &plan.main {
        Some(main) => vec![main.clone()],
        None => programs(&modules),
    };
    let knowledge = Knowledge::stock();
    if programs.is_empty() && crate::client::run::is_ordinary(&modules) {
        let is_own = |file: &str| is_own(&plan.files, file);
        return crate::client::run::run(&modules, &knowledge, &is_own, plan.seconds, stop);
    }
    if programs.is_empty() {
        return refuse(
            "the files hold no program; a driver names one with ACTIVE_PROGRAM(main, \"protocols\"), or give --main and --protocols",
        );
    }
    let mut all = Vec::new();
    for (main, names) in programs {
        all.push(program(plan, &modules, &knowledge, main, names)?);
    }
    Ok(all)
}

/// The programs that the files name: main function and protocols.
pub fn programs(modules: &[Module]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for module in modules {
        for (name, global) in &module.globals {
            let (Some(main), Some(Value::Text(text))) = (name.strip_prefix(MARK), &global.initial) else {
                continue;
            };
            let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
            found.push((main.to_owned(), text));
        }
    }
    found.sort();
    found
}

fn program(
    plan: &Plan,
    modules: &[Module],
    knowledge: &Knowledge,
    main: String,
    names: String,
) -> Result<Verified, FrontError> {
    let start = Instant::now();
    let words: Vec<&str> = names.split_whitespace().collect();
    if words.is_empty() {
        return refuse(format!("{main} names no protocol"));
    }
    let protocols = Protocols::new(&plan.machines, &words).map_err(FrontError::Other)?;
    let Some(home) = modules.iter().position(|module| module.functions.contains_key(&main)) else {
        return refuse(format!("there is no function {main} in the files"));
    };
    let is_own = |file: &str| is_own(&plan.files, file);
    let at = (home, main.clone());
    let source = Source { modules, deep: true, main: at, is_own: &is_own, knowledge, client: None };
    let budget =
        Budget { deadline: start + Duration::from_secs(plan.seconds), states: STATES, work: usize::MAX };
    if plan.check.is_none() && !plan.model && !plan.by_rule {
        return decided(&source, &protocols, &budget, |program, decision| {
            searched(program, &protocols, decision, (main.clone(), names.clone()), start)
        })
        .map_err(FrontError::Other)?;
    }
    // A certificate is about the control skeleton that its search had.
    let mine = |one: &&Certificate| one.main == main && one.protocols == names;
    let deep = plan.check.iter().flatten().find(mine).is_none_or(|one| one.deep);
    let program = translate(&Source { deep, ..source }).map_err(FrontError::Other)?;
    if let Some(all) = &plan.check {
        return checked(plan, all, &program, main, names);
    }
    let mut verified = begun(&program, main, names.clone());
    if plan.model {
        let charts: Vec<&Protocol> = plan.machines.iter().map(|machine| &machine.protocol).collect();
        verified.model = Some(promela::model(&program, &charts, &names).map_err(FrontError::Other)?);
        verified.undecided = Some("the model for Spin was written, and nothing was searched".to_owned());
        return Ok(verified);
    }
    let answers = by_rule::decide(&program, &plan.machines, &words, &budget).map_err(FrontError::Other)?;
    verified.states = answers.asked.iter().map(|one| one.states).max().unwrap_or(0);
    verified.rounds = answers.asked.iter().map(|one| one.searches).sum();
    verified.by_rule = answers.asked;
    let outcome = match answers.open {
        Some(open) => open,
        None if answers.faults.is_empty() => Outcome::Proved,
        None => Outcome::Broken(answers.faults),
    };
    tell(&program, &protocols, &outcome, verified, start)
}

/// What is known of a program before it is searched.
fn begun(program: &Program, main: String, protocols: String) -> Verified {
    Verified {
        main,
        protocols,
        places: program.nodes.len(),
        assumptions: program.assumptions.iter().cloned().collect(),
        ..Verified::default()
    }
}

/// What a search of all rules together says.
fn searched(
    program: &Program,
    protocols: &Protocols,
    decision: Decision<'_>,
    (main, names): (String, String),
    start: Instant,
) -> Result<Verified, FrontError> {
    let mut verified = Verified { rounds: decision.rounds, ..begun(program, main, names) };
    if let Some(graph) = &decision.graph {
        verified.states = graph.states.len();
        verified.followed = program.followed(&graph.tracked);
        verified.assumptions.extend(findings::loops(program, &decision.ended));
        if matches!(decision.outcome, Outcome::Proved) {
            let proof = certificate(graph, &decision.ended, &verified.main, &verified.protocols);
            verified.certificate = Some(proof);
        }
    }
    tell(program, protocols, &decision.outcome, verified, start)
}

/// Adds the outcome.
fn tell(
    program: &Program,
    protocols: &Protocols,
    outcome: &Outcome,
    mut verified: Verified,
    start: Instant,
) -> Result<Verified, FrontError> {
    match outcome {
        Outcome::Proved => verified.proved = true,
        Outcome::Undecided(why) => verified.undecided = Some(why.clone()),
        Outcome::Refused(why) => return refuse(why.clone()),
        Outcome::Broken(faults) => {
            verified.findings =
                faults.iter().map(|fault| findings::finding(program, protocols, fault)).collect();
            let first = faults.iter().zip(&verified.findings).next();
            verified.chart =
                first.map(|(fault, finding)| sequence::svg(program, protocols, fault, &finding.message));
        }
    }
    verified.seconds = start.elapsed().as_secs_f64();
    Ok(verified)
}

/// Checks the certificate of a program.
fn checked(
    plan: &Plan,
    all: &[Certificate],
    program: &Program,
    main: String,
    names: String,
) -> Result<Verified, FrontError> {
    let start = Instant::now();
    let Some(own) = all.iter().find(|one| one.main == main && one.protocols == names) else {
        return refuse(format!("there is no certificate of {main} with the protocols {names}"));
    };
    let charts: Vec<&Protocol> = plan.machines.iter().map(|machine| &machine.protocol).collect();
    let deadline = start + Duration::from_secs(plan.seconds);
    let checked = recheck::check(own, program, &charts, deadline)
        .map_err(|what| FrontError::Other(format!("the certificate of {main} is refused: {what}")))?;
    let script = plan.script.then(|| recheck::obligations(own, program, &charts, deadline)).transpose();
    let script = script.map_err(FrontError::Other)?.map(|(text, _)| text);
    let followed = own.followed.iter().filter_map(|cell| program.cells.get(*cell as usize));
    Ok(Verified {
        main,
        protocols: names,
        proved: true,
        seconds: start.elapsed().as_secs_f64(),
        places: program.nodes.len(),
        states: own.states.len(),
        followed: followed.map(|cell| cell.name.clone()).collect(),
        assumptions: program.assumptions.iter().cloned().chain(checked.assumptions).collect(),
        script,
        ..Verified::default()
    })
}

/// A file of the driver: one of those that are verified, or a header beside one.
fn is_own(files: &[PathBuf], file: &str) -> bool {
    let path = short(Path::new(file));
    !file.is_empty()
        && files.iter().map(|own| short(own)).any(|own| path == own || path.parent() == own.parent())
}

/// A path from the current folder, as the compiler may write it.
fn short(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(here).unwrap_or(path);
    path.components().filter(|part| *part != Component::CurDir).collect()
}
