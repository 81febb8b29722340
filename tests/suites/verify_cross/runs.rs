//! Runs of a driver's own machine code: each is one that its certificate holds.
//!
//! The C compiler's machine code knows nothing of the parser, of the control skeleton, and of the search.

use super::{Driver, RIGHT, fixture, pump_source};
use guardrail_verify::certificate::Certificate;
use guardrail_verify::program::Action;
use guardrail_verify::recheck::charts::{self, Charts};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Messages of one run.
const LENGTH: usize = 400;
/// Runs of each form of the driver.
const RUNS: u64 = 40;

/// What a run did.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    /// It waited for these, and this one came; absent where the run was stopped.
    Await(u64, Option<u64>),
    /// It sent this.
    Emit(u64),
    /// Its main function returned.
    End,
}

/// An event, and the address behind the call.
type Traced = (Event, u64);

fn build(folder: &Path, definitions: &[&str]) -> PathBuf {
    let driver = pump_source(folder, definitions);
    let program = folder.join("machine");
    let status = Command::new("clang-14")
        .args(["-O0", "-g", "-w", "-no-pie", "-o"])
        .arg(&program)
        .arg(&driver)
        .arg(fixture("machine.c"))
        .status()
        .expect("clang-14 is needed; scripts/setup installs it");
    assert!(status.success());
    program
}

/// Runs the machine code. Messages come at random among those that its protocols allow and that it awaits.
fn run(program: &Path, driver: &Driver, seed: u64) -> Vec<Traced> {
    let stock = driver.charts();
    let charts = Charts::new(&stock, &driver.names).unwrap();
    let mut modes: Vec<u16> = charts.all.iter().map(|chart| charts::enter(chart, None).unwrap()).collect();
    let mut child = Command::new(program)
        .arg(seed.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut all = Vec::new();
    for line in lines {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let address = words.get(2).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let moved = |modes: &mut Vec<u16>, message: u64| {
            let (at, index) = charts.numbers[&message];
            modes[at] = charts::step(charts.all[at], modes[at], index).expect("a correct driver");
        };
        match words[0] {
            "await" => {
                let may: Vec<u64> = (0..64)
                    .filter(|n| number(1) >> n & 1 == 1)
                    .filter(|n| {
                        let (at, index) = charts.numbers[n];
                        charts::step(charts.all[at], modes[at], index).is_some()
                    })
                    .collect();
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let came = (all.len() < LENGTH).then(|| may[random as usize % may.len()]);
                all.push((Event::Await(number(1), came), address.unwrap()));
                let Some(came) = came else {
                    writeln!(input, "-1").unwrap();
                    break;
                };
                writeln!(input, "{came}").unwrap();
                moved(&mut modes, came);
            }
            "emit" => {
                all.push((Event::Emit(number(1)), address.unwrap()));
                moved(&mut modes, number(1));
            }
            _ => all.push((Event::End, 0)),
        }
    }
    assert!(child.wait().unwrap().success());
    all
}

/// The source lines of calls, by the addresses behind them.
fn lines(program: &Path, addresses: &BTreeSet<u64>) -> BTreeMap<u64, u32> {
    let mut command = Command::new("addr2line");
    command.arg("-e").arg(program).args(addresses.iter().map(|address| format!("{:#x}", address - 1)));
    let output = command.output().expect("addr2line is a part of binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| line.rsplit(':').next()?.split(' ').next()?.parse().ok();
    addresses.iter().copied().zip(text.lines().map(|text| line(text).expect("a line"))).collect()
}

/// Follows a run through the states of a certificate; an error is the event that no state has.
fn follow(
    driver: &Driver,
    whole: &Certificate,
    run: &[Traced],
    lines: &BTreeMap<u64, u32>,
) -> Result<(), usize> {
    let program = &driver.program;
    let stock = driver.charts();
    let charts = Charts::new(&stock, &driver.names).unwrap();
    let names = |modes: &[u16]| -> Vec<String> {
        charts.all.iter().zip(modes).map(|(chart, mode)| charts::name(chart, *mode)).collect()
    };
    let mut modes: Vec<u16> = charts.all.iter().map(|chart| charts::enter(chart, None).unwrap()).collect();
    let mut at: BTreeSet<u32> = BTreeSet::from([0]);
    for (index, (event, address)) in run.iter().enumerate() {
        // All that is reached without a message.
        let mut work: Vec<u32> = at.iter().copied().collect();
        while let Some(state) = work.pop() {
            for (edge, _, to) in &whole.steps[state as usize] {
                let silent =
                    !matches!(program.edges[*edge as usize].action, Action::Emit(_) | Action::Await(..));
                if silent && at.insert(*to) {
                    work.push(*to);
                }
            }
        }
        let message = match event {
            Event::Emit(number) | Event::Await(_, Some(number)) => Some(*number),
            _ => None,
        };
        if let Some((of, it)) = message.map(|number| charts.numbers[&number]) {
            modes[of] = charts::step(charts.all[of], modes[of], it).unwrap();
        }
        let expected = names(&modes);
        let constant = |id: u32| program.arena.number(id);
        let mut next = BTreeSet::new();
        for state in &at {
            if *event == Event::End && whole.states[*state as usize].0 == program.exit {
                next.insert(*state);
            }
            for (edge, received, to) in &whole.steps[*state as usize] {
                let edge = &program.edges[*edge as usize];
                let fits = match (&edge.action, event) {
                    (Action::Emit(id), Event::Emit(number)) => constant(*id).is_none_or(|own| own == *number),
                    (Action::Await(id, _), Event::Await(mask, came)) => {
                        constant(*id).is_none_or(|own| own == *mask)
                            && came.is_none_or(|came| u64::from(*received) == came + 1)
                    }
                    _ => false,
                };
                let there = &whole.modes[whole.states[*to as usize].1 as usize];
                let stopped = matches!(event, Event::Await(_, None));
                if fits && edge.line.number == lines[address] && (stopped || *there == expected) {
                    next.insert(*to);
                }
            }
        }
        if next.is_empty() {
            return Err(index);
        }
        at = next;
    }
    Ok(())
}

/// Random runs of the machine code are runs that the certificate holds; one from another line is noticed.
#[test]
fn runs_of_machine_code_are_in_the_certificate() {
    let mut events = 0;
    for definitions in RIGHT {
        let folder = tempfile::tempdir().unwrap();
        let program = build(folder.path(), definitions);
        let driver = Driver::pump(definitions);
        let whole = driver.certificate();
        let runs: Vec<Vec<Traced>> = (1..=RUNS).map(|seed| run(&program, &driver, seed)).collect();
        let addresses = runs.iter().flatten().map(|(_, address)| *address).filter(|address| *address > 0);
        let lines = lines(&program, &addresses.collect());
        let mut noticed = 0;
        for (seed, run) in runs.iter().enumerate() {
            let followed = follow(&driver, &whole, run, &lines);
            assert!(
                followed.is_ok(),
                "{definitions:?} seed {}: {:?}",
                seed + 1,
                followed.map_err(|at| &run[..=at])
            );
            events += run.len();
            // The same run from another line is not in it.
            let mut other = lines.clone();
            if let Some(line) = other.get_mut(&run[run.len() / 2].1) {
                *line += 1000;
                noticed += u32::from(follow(&driver, &whole, run, &other).is_err());
            }
        }
        assert!(noticed > RUNS as u32 / 2, "{noticed}");
        // What the source calls at some time is called at some time: the runs are not all the same.
        assert!(lines.len() > 8, "{}", lines.len());
    }
    assert!(events > 20_000, "{events}");
    println!("{events} messages");
}
