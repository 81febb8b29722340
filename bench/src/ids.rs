//! `bench/run ids`: how many fingerprints runs of the same drivers have in common, over runs and over two kernels.

use crate::common::Failure;
use crate::reports;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Traces (.trace) and reports (.json), or folders of them; the order pairs the runs of the two kernels
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The two kernels that are compared
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', num_args = 2, default_value = "6.1,6.12")]
    kernels: Vec<String>,
    /// Fail where fewer fingerprints are in common between the kernels, in percent of all
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    min: usize,
}

/// The fingerprints of a run, without those of notes.
type Ids = BTreeSet<String>;
/// The runs by driver and kernel, in the order in which they were given.
type Runs = BTreeMap<String, BTreeMap<String, Vec<Ids>>>;

/// Fingerprints in common, and all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    common: usize,
    all: usize,
}

impl Share {
    /// What is in all of the sets, and what is in any.
    fn of(sets: &[Ids]) -> Share {
        let all: Ids = sets.iter().flatten().cloned().collect();
        let common = all.iter().filter(|id| sets.iter().all(|set| set.contains(*id))).count();
        Share { common, all: all.len() }
    }

    fn percent(self) -> usize {
        (self.common * 100).checked_div(self.all).unwrap_or(100)
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.common, self.all)
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut runs = Runs::new();
    for file in reports::files(&arguments.runs).map_err(Failure::Usage)? {
        let report = reports::read(&file, "all").map_err(Failure::Usage)?;
        let (driver, kernel, ids) = read(&report, &file).map_err(Failure::Usage)?;
        runs.entry(driver).or_default().entry(kernel).or_default().push(ids);
    }
    let all = print(&runs, &arguments.kernels).map_err(Failure::Usage)?;
    if all.percent() < arguments.min {
        let why = format!("{all} ({} %) are in common, less than {} %", all.percent(), arguments.min);
        return Err(Failure::Run(why));
    }
    Ok(())
}

fn read(report: &Value, file: &Path) -> Result<(String, String, Ids), String> {
    let wrong = || format!("{} is no report of a run", file.display());
    let driver = report["driver"].as_str().ok_or_else(wrong)?.replace('-', "_");
    let kernel = guardrail_corpus::kernel(report["kernel"].as_str().ok_or_else(wrong)?).to_owned();
    let findings = report["findings"].as_array().ok_or_else(wrong)?;
    let counted = findings.iter().filter(|finding| finding["severity"] != "note");
    let ids = counted.filter_map(|finding| finding["id"].as_str()).map(str::to_owned).collect();
    Ok((driver, kernel, ids))
}

/// Prints the table, and gives the share of all drivers between the two kernels.
fn print(runs: &Runs, kernels: &[String]) -> Result<Share, String> {
    let [one, other] = kernels else { return Err("two kernels are compared; give both".to_owned()) };
    println!("| driver | kernels | pooled | runs on {one} | runs on {other} |\n|---|---|---|---|---|");
    let mut total = Share::default();
    for (driver, by_kernel) in runs {
        let (Some(a), Some(b)) = (by_kernel.get(one), by_kernel.get(other)) else {
            return Err(format!("{driver} has no run on one of {one} and {other}; both are compared"));
        };
        let pool = |sets: &[Ids]| -> Ids { sets.iter().flatten().cloned().collect() };
        let pairs: Vec<String> =
            a.iter().zip(b).map(|(a, b)| Share::of(&[a.clone(), b.clone()]).to_string()).collect();
        let pooled = Share::of(&[pool(a), pool(b)]);
        let (in_one, in_other) = (Share::of(a), Share::of(b));
        println!(
            "| {driver} | {} | {pooled} ({}%) | {in_one} | {in_other} |",
            pairs.join(", "),
            pooled.percent()
        );
        total.common += pooled.common;
        total.all += pooled.all;
    }
    println!("| all | | {total} ({}%) | | |", total.percent());
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(words: &str) -> Ids {
        words.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn runs_are_compared_over_kernels_and_with_each_other() {
        let runs = |a: &[&str]| a.iter().map(|words| ids(words)).collect::<Vec<_>>();
        let by_kernel = BTreeMap::from([
            ("6.1".to_owned(), runs(&["a b", "a b c"])),
            ("6.12".to_owned(), runs(&["a", "a c"])),
        ]);
        let kernels = ["6.1".to_owned(), "6.12".to_owned()];
        let all = print(&Runs::from([("d".to_owned(), by_kernel.clone())]), &kernels).unwrap();
        assert_eq!((all, all.percent()), (Share { common: 2, all: 3 }, 66));
        assert_eq!(Share::of(&by_kernel["6.1"]), Share { common: 2, all: 3 });
        assert_eq!(Share::of(&[ids("")]).percent(), 100);
        let one = BTreeMap::from([("6.1".to_owned(), runs(&["a"]))]);
        assert!(
            print(&Runs::from([("d".to_owned(), one)]), &kernels).unwrap_err().starts_with("d has no run")
        );
    }

    #[test]
    fn notes_do_not_count() {
        let report = serde_json::json!({"driver": "a-b", "kernel": "6.1.0-56-amd64", "findings": [
            {"id": "1", "severity": "note"}, {"id": "2", "severity": "error"}]});
        let read = read(&report, Path::new("x")).unwrap();
        assert_eq!(read, ("a_b".to_owned(), "6.1".to_owned(), ids("2")));
    }
}
