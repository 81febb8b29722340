//! A module that was written to escape, guarded in a guest: each attempt is stopped, and nothing of the kernel's has changed.
//!
//! What is not stopped yet is listed in `fixtures/hostile/open.txt`, with the reason. A test fails where an attempt that is
//! not listed succeeds, and where a listed one is stopped.

#[path = "hostile/guest.rs"]
mod guest;
#[path = "hostile/open.rs"]
mod open;
#[path = "hostile/verdict.rs"]
mod verdict;

use guardrail_tests::ensure;
use guardrail_vm::kernels::NAMES;
use guest::Lab;
use libtest_mimic::{Arguments, Failed, Trial};
use open::Open;
use verdict::{End, Verdict};

/// The ways out that were known first, on every kernel in every run of the tests.
const FIRST: [&str; 12] = [
    "store_8",
    "w_memcpy_short",
    "l_mutex_init",
    "w_strreplace",
    "l_spin_unlock_pattern",
    "w_sprintf_short",
    "o_get_device_wild",
    "l_mutex_lock_wild",
    "c_import",
    "c_return_pointer",
    "c_return_memcpy",
    "beside_guard",
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("open attempts exist and have reasons", listed)];
    for (place, kernel) in NAMES.into_iter().enumerate() {
        let name = format!("a sample of attempts to escape is stopped on {kernel}");
        trials.push(Trial::test(name, move || stopped(kernel, Some(place))).with_ignored_flag(place > 0));
        let name = format!("code that leads past checks is refused on {kernel}");
        trials.push(Trial::test(name, move || refused(kernel)).with_ignored_flag(place > 0));
        let name = format!("every attempt to escape is stopped on {kernel}");
        trials.push(Trial::test(name, move || stopped(kernel, None)).with_ignored_flag(true));
        let name = format!("nothing is reported of a sample of what is allowed on {kernel}");
        trials.push(Trial::test(name, move || silent(kernel, Some(place))).with_ignored_flag(place > 0));
        let name = format!("nothing is reported of what is allowed on {kernel}");
        trials.push(Trial::test(name, move || silent(kernel, None)).with_ignored_flag(true));
    }
    guardrail_tests::run(arguments, trials)
}

/// The names in the list are those of attempts, each once.
fn listed() -> Result<(), Failed> {
    let open = Open::read()?;
    let sources = guest::sources()?;
    let is_there = |name: &str| {
        let refused =
            name.strip_prefix("refused_").is_some_and(|name| sources.contains(&format!("REFUSED({name},")));
        refused || sources.contains(&format!("A({name})"))
    };
    let unknown: Vec<&str> = open.names().filter(|name| !is_there(name)).collect();
    ensure(unknown.is_empty(), || format!("no such attempts: {unknown:?}"))
}

/// The attempts of a short run: the first ones, and of the others each sixth, by the kernel's place.
/// Those that end their guest are left to the long one.
fn sample(kernel: &str, names: &[String], place: usize, open: &Open) -> Vec<String> {
    let chosen = |(number, name): &(usize, &String)| {
        let oopses = open.of(kernel, name).is_some_and(|known| known.oopses);
        !oopses && (number % (2 * NAMES.len()) == place || FIRST.contains(&name.as_str()))
    };
    names.iter().enumerate().filter(chosen).map(|(_, name)| name.clone()).collect()
}

/// Judges verdicts against the list, and prints the table as documents have it.
fn judge(kernel: &str, verdicts: &[Verdict], open: &Open) -> Result<(), Failed> {
    let mut wrong = Vec::new();
    for verdict in verdicts {
        match (verdict.is_stopped(), open.of(kernel, &verdict.name)) {
            (false, None) => wrong.push(format!("not stopped: {verdict}")),
            (true, Some(known)) => {
                wrong.push(format!("listed as open ({}), but stopped: {verdict}", known.reason));
            }
            (false, Some(known)) if verdict.is_oops() && !known.oopses => {
                wrong.push(format!("listed as escaping, but it oopses: {verdict}"));
            }
            _ => {}
        }
    }
    println!("{}", verdict::table(kernel, verdicts));
    ensure(wrong.is_empty(), || format!("{} on {kernel}:\n{}", wrong.len(), wrong.join("\n")))
}

/// The attempts of a sample, or all: none is named then. The variable `GUARDRAIL_HOSTILE_ONLY` names some of all, to look
/// into.
fn chosen(kernel: &str, place: Option<usize>, open: &Open) -> Result<Vec<String>, Failed> {
    let named = || std::env::var("GUARDRAIL_HOSTILE_ONLY").unwrap_or_default();
    Ok(match place {
        Some(place) => sample(kernel, &guest::names()?, place, open),
        None => named().split_whitespace().map(str::to_owned).collect(),
    })
}

/// Attempts in a guest, and where one ends it, in another that begins behind it.
fn stopped(kernel: &str, place: Option<usize>) -> Result<(), Failed> {
    let lab = Lab::new(kernel)?;
    let open = Open::read()?;
    judge(kernel, &lab.attempts(&chosen(kernel, place, &open)?)?, &open)
}

/// A module with one function that cannot be guarded is refused; with all of them trusted it is not.
fn refused(kernel: &str) -> Result<(), Failed> {
    let lab = Lab::new(kernel)?;
    let functions = guest::refused_functions()?;
    ensure(functions.len() > 10 && lab.is_refused(&functions)?.is_none(), || {
        "it is refused, though all is trusted".into()
    })?;
    let open = Open::read()?;
    let mut wrong = Vec::new();
    for function in &functions {
        let others: Vec<String> = functions.iter().filter(|other| *other != function).cloned().collect();
        match (lab.is_refused(&others)?, open.of(kernel, function)) {
            (None, None) => wrong.push(format!("{function} is not refused")),
            (Some(why), Some(_)) => wrong.push(format!("{function} is listed as open, but refused: {why}")),
            _ => {}
        }
    }
    ensure(wrong.is_empty(), || wrong.join("\n"))
}

/// What is allowed instead of each attempt: nothing may be reported of it.
fn silent(kernel: &str, place: Option<usize>) -> Result<(), Failed> {
    let lab = Lab::new(kernel)?;
    let twins = lab.twins(&chosen(kernel, place, &Open::read()?)?)?;
    let wrong: Vec<String> =
        twins.iter().filter(|twin| twin.end != End::Returned).map(Verdict::to_string).collect();
    println!("{} twins on {kernel}, {} reported", twins.len(), wrong.len());
    ensure(wrong.is_empty(), || format!("{} twins on {kernel}:\n{}", wrong.len(), wrong.join("\n")))
}
