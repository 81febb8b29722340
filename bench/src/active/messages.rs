//! Messages: what the benchmark of the core measures, beside calls in the same run.

use super::Arguments;
use super::guest::Guest;
use super::table::{Row, Table};
use guardrail_vm::packages::Packages;
use std::path::PathBuf;

const SCRIPT: &str = r#"
load() { insmod /guardrail/guardrail_active.ko && insmod /guardrail/active_net.ko; }
measure() { insmod /guardrail/active_bench.ko rounds="$ROUNDS" runs="$RUNS"; }
log() { dmesg | grep 'bench: ' >/dev/console; }
unload() { rmmod active_bench && rmmod active_net && ! dmesg | grep 'guardrail: active' && rmmod guardrail_active; }
step load load
step measure measure
step log log
step unload unload
"#;

/// Messages of a run.
const ROUNDS: u32 = 10_000;
const TRY_ROUNDS: u32 = 1000;
const BASE: &str = "a call under a lock";

/// Measures all of them.
pub fn measure(packages: &Packages, arguments: &Arguments, modules: &[PathBuf]) -> Result<Table, String> {
    let rounds = if arguments.only_try { TRY_ROUNDS } else { ROUNDS };
    let runs = arguments.pairs();
    let guest = Guest {
        driver: "8139cp",
        device: "rtl8139",
        script: SCRIPT,
        variables: vec![("ROUNDS".into(), rounds.to_string()), ("RUNS".into(), runs.to_string())],
        programs: &[],
    };
    let console = guest.run(packages, arguments, modules)?;
    let rows = rows(&console);
    if !console.contains("bench: done") || rows.iter().any(|row| row.figures.len() != runs as usize) {
        return Err("the benchmark of the core did not end".to_owned());
    }
    Ok(Table {
        head: format!("messages, {}, {runs} runs", arguments.guest()),
        base: "call",
        figure: "message",
        unit: "ns",
        rows,
    })
}

/// Reads the lines `bench: WHAT: NUMBER ns`. The base of a figure is a call under a lock of as many senders, and that of an interrupt is a
/// tasklet's.
fn rows(console: &str) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    for line in console.lines() {
        let Some((what, number)) =
            line.split_once("bench: ").and_then(|(_, line)| line.strip_suffix(" ns")?.rsplit_once(": "))
        else {
            continue;
        };
        let Ok(number) = number.parse::<f64>() else { continue };
        Row::named(&mut all, what).figures.push(number);
    }
    let base = |what: &str| {
        if what.ends_with("from an interrupt") {
            return "a tasklet, from an interrupt".to_owned();
        }
        match what.rsplit_once(", ").filter(|(_, senders)| senders.ends_with(" senders")) {
            Some((_, senders)) => format!("{BASE}, {senders}"),
            None => BASE.to_owned(),
        }
    };
    let bases: Vec<Vec<f64>> = all
        .iter()
        .map(|row| all.iter().find(|other| other.name == base(&row.name)))
        .map(|found| found.map_or_else(Vec::new, |row| row.figures.clone()))
        .collect();
    for (row, bases) in all.iter_mut().zip(bases) {
        row.bases = bases;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_compared_with_calls_of_as_many_senders() {
        let console = "[1] bench: a call under a lock: 100 ns\n[1] bench: thread, ping-pong: 900 ns\n\
                       [1] bench: a call under a lock, 2 senders: 50 ns\n[1] bench: thread, 2 senders: 75 ns\n[1] bench: done\n";
        let rows = rows(console);
        let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap().bases.clone();
        assert_eq!(rows.len(), 4);
        assert_eq!((of("thread, ping-pong"), of("thread, 2 senders")), (vec![100.0], vec![50.0]));
    }
}
