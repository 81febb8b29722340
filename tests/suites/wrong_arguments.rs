//! A guarded module calls every function that the border has a row for, with every pointer wrong in turn: the kernel lives
//! on, and nothing but the module's own memory has changed.
//!
//! What does harm still is listed in `fixtures/wrong/open.txt`, with the reason. A test fails where a call that is not
//! listed does harm.

#[path = "wrong_arguments/functions.rs"]
mod functions;
#[path = "wrong_arguments/guest.rs"]
mod guest;
#[path = "wrong_arguments/open.rs"]
mod open;
#[path = "wrong_arguments/source.rs"]
mod source;
#[path = "wrong_arguments/verdict.rs"]
mod verdict;

use functions::Call;
use guardrail_tests::ensure;
use guardrail_vm::kernels::NAMES;
use guest::Lab;
use libtest_mimic::{Arguments, Failed, Trial};
use open::Open;
use sha2::{Digest, Sha256};
use verdict::Verdict;

/// Of the calls of a whole run, a short one makes one of so many.
const SAMPLE: u64 = 40;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (place, kernel) in NAMES.into_iter().enumerate() {
        let name = format!("a sample of wrong arguments is stopped on {kernel}");
        trials.push(Trial::test(name, move || stopped(kernel, SAMPLE)).with_ignored_flag(place > 0));
        let name = format!("every wrong argument is stopped on {kernel}");
        trials.push(Trial::test(name, move || stopped(kernel, 1)).with_ignored_flag(true));
    }
    guardrail_tests::run(arguments, trials)
}

/// A number that decides whether a call is in the sample. It depends on the call alone: a new row for one function
/// does not make other calls take part.
fn lot(function: &str, call: &Call) -> u64 {
    let digest = Sha256::digest(format!("{function} {} {}", call.argument, call.wrongness.word()));
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Makes one of so many of the calls, and judges them. The variable `GUARDRAIL_WRONG_ONLY` names functions, to look into, and
/// `GUARDRAIL_WRONG_RESULTS` a file for all verdicts.
fn stopped(kernel: &str, each: u64) -> Result<(), Failed> {
    let open = Open::read()?;
    let lab = Lab::new(kernel)?;
    let only = std::env::var("GUARDRAIL_WRONG_ONLY").unwrap_or_default();
    let only: Vec<&str> = only.split_whitespace().collect();
    let chosen = |call: &Call| {
        let name = lab.functions[call.function].name.as_str();
        let sampled = each == 1 || lot(name, call).is_multiple_of(each) && !open.ends_guests(name);
        sampled && (only.is_empty() || only.contains(&name))
    };
    let mut calls = functions::calls(&lab.functions);
    calls.retain(chosen);
    let verdicts = lab.run(&calls, |verdict| open.has(verdict))?;
    if let Some(file) = std::env::var_os("GUARDRAIL_WRONG_RESULTS") {
        let lines: Vec<String> = verdicts.iter().map(Verdict::to_string).collect();
        std::fs::write(file, lines.join("\n") + "\n")?;
    }
    println!("{}", verdict::table(kernel, &verdicts));
    let gone: Vec<&str> = open.unmet(&verdicts).collect();
    if each == 1 && only.is_empty() && !gone.is_empty() {
        println!("listed as open, but none of these did harm: {}", gone.join(", "));
    }
    let wrong: Vec<String> = verdicts
        .iter()
        .filter(|verdict| verdict.is_harmful() && !open.has(verdict))
        .map(Verdict::to_string)
        .collect();
    ensure(wrong.is_empty(), || format!("{} on {kernel}:\n{}", wrong.len(), wrong.join("\n")))
}
