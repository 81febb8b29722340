//! `bench/run instructions`: what the checks of a guarded driver cost as time, on this machine's own processor.
//!
//! Guests are emulated here, so that their clock says nothing about a processor. But the instructions that a driver is given are the
//! same anywhere. So loops that a driver could have are compiled as a driver is, and guarded by the rewriter. A process times them in
//! turns with the same loops as they are.

use crate::common::{Failure, Format, median};
use crate::process;
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::rewrite;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SEQUENCES: &str = include_str!("sequences.c");
const HARNESS: &str = include_str!("harness.c");

/// Longest time for a compiler, and for each timing of all loops, which take a second.
const COMPILES: Duration = Duration::from_secs(60);
const TIMES: Duration = Duration::from_secs(60);

/// As the kernel compiles its modules, as far as it matters here.
const AS_A_MODULE: [&str; 9] = [
    "-O2",
    "-c",
    "-fno-pic",
    "-mcmodel=kernel",
    "-mno-red-zone",
    "-fcf-protection=none",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-falign-functions=16",
];

/// The sequences, and what is done in a turn of each.
const TURNS: [(&str, &str); 6] = [
    ("loop", "nothing: only the loop is counted"),
    ("store", "a store of 8 bytes"),
    ("stores", "four stores to 16 bytes"),
    ("flags", "a store where flags are in use"),
    ("bit", "a bit by its number"),
    ("call", "a call by pointer"),
];

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How often each loop is timed
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Only run each loop once and shortly
    #[arg(long = "try")]
    only_try: bool,
    /// How the table is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What came out for one sequence in one size.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    kib: u64,
    /// Nanoseconds of a turn, as it is and guarded, for each run.
    turns: Vec<(f64, f64)>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let rows = measure(arguments)?;
    arguments.format.print(|| text(&rows), || json(&rows));
    Ok(())
}

fn measure(arguments: &Arguments) -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(path(name), bytes).map_err(|error| format!("cannot write {name}: {error}"))
    };
    write("sequences.c", SEQUENCES.as_bytes())?;
    write("harness.c", HARNESS.as_bytes())?;
    for prefix in ["stock", "guarded"] {
        let (define, object) = (format!("-DPREFIX={prefix}_"), format!("{prefix}.o"));
        let words = AS_A_MODULE.into_iter().chain([&*define, "sequences.c", "-o", &*object]);
        execute(folder.path(), "gcc", words, COMPILES)?;
    }
    let plain =
        std::fs::read(path("guarded.o")).map_err(|error| format!("cannot read guarded.o: {error}"))?;
    let guarded =
        rewrite("sequences", plain, &mut [&mut Checks::new(1)]).map_err(|error| error.to_string())?;
    write("guarded.o", &guarded.file)?;
    let words = ["-O2", "-no-pie", "harness.c", "stock.o", "guarded.o", "-o", "harness"];
    execute(folder.path(), "gcc", words, COMPILES)?;
    let (runs, millions) = if arguments.only_try { (1, 1) } else { (arguments.runs, 20) };
    let harness = path("harness").display().to_string();
    let output =
        execute(folder.path(), &harness, [&*runs.to_string(), &*millions.to_string()], TIMES * runs)?;
    rows(&output)
}

/// Runs a program in a folder, and gives what it says.
fn execute<'a>(
    folder: &Path,
    program: &str,
    words: impl IntoIterator<Item = &'a str>,
    limit: Duration,
) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    process::dies_with_us(&mut command, libc::SIGKILL);
    let child = command
        .spawn()
        .map_err(|error| format!("cannot run {program}: {error}; scripts/setup installs what is needed"))?;
    process::finish(child, limit, program, &mut || {})
}

/// What the timed program says, by sequence and size.
fn rows(output: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unclear = || format!("the harness said '{line}'");
        let [name, kib, stock, guarded] = words[..] else { return Err(unclear()) };
        let number = |word: &str| word.parse::<f64>().map_err(|_| unclear());
        let kib = kib.parse().map_err(|_| unclear())?;
        let turn = (number(stock)?, number(guarded)?);
        match rows.iter_mut().find(|row| row.name == name && row.kib == kib) {
            Some(row) => row.turns.push(turn),
            None => rows.push(Row { name: name.into(), kib, turns: vec![turn] }),
        }
    }
    Ok(rows)
}

impl Row {
    /// Medians, of the turn as it is and of what the guarded one takes longer in the same run.
    fn medians(&self) -> (f64, f64) {
        let median = |number: fn(&(f64, f64)) -> f64| median(self.turns.iter().map(number).collect());
        (median(|turn| turn.0), median(|turn| turn.1 - turn.0))
    }
}

fn text(rows: &[Row]) -> String {
    let mut text =
        String::from("| in each turn | memory | as it is, ns | more when guarded, ns |\n|---|---|---|---|\n");
    for row in rows {
        let what = TURNS.iter().find(|(name, _)| *name == row.name).map_or(&*row.name, |(_, what)| what);
        let (stock, more) = row.medians();
        let memory =
            if row.kib < 1024 { format!("{} KiB", row.kib) } else { format!("{} MiB", row.kib >> 10) };
        text += &format!("| {what} | {memory} | {stock:.2} | {more:.2} |\n");
    }
    text
}

fn json(rows: &[Row]) -> serde_json::Value {
    let row = |row: &Row| {
        let (stock, more) = row.medians();
        json!({ "sequence": row.name, "kib": row.kib, "stock_ns": stock, "more_ns": more, "runs": row.turns })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_those_of_the_same_run() {
        let rows = rows("store 4 1.0 2.0\nstore 4 3.0 3.5\nstore 4 2.0 3.5\nstore 65536 2.0 4.0\n").unwrap();
        assert_eq!(rows.iter().map(Row::medians).collect::<Vec<_>>(), [(2.0, 1.0), (2.0, 2.0)]);
        assert!(text(&rows).contains("| a store of 8 bytes | 64 MiB | 2.00 | 2.00 |"));
    }

    #[test]
    fn what_is_not_understood_is_told() {
        assert_eq!(super::rows("store 4 fast 2.0").unwrap_err(), "the harness said 'store 4 fast 2.0'");
    }
}
