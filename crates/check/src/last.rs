//! The report of the last run, which is kept so that its findings can be looked at one by one.

use crate::stored;
use guardrail_host::{HostError, files};
use guardrail_report::list::MAX_FILE;
use guardrail_report::{Report, json};
use guardrail_vm::Cache;
use std::path::{Path, PathBuf};

/// Where the last report is, in the cache.
const FILE: &str = "reports/last.json";

/// Keeps a report as the last one. A reader at the same time gets this one or the one before.
pub fn keep(report: &Report, cache: &Cache) -> Result<(), HostError> {
    let mut text = Vec::new();
    json::write(report, &mut text).map_err(HostError::io("write to", "memory"))?;
    cache.write_atomically(FILE, &text)?;
    Ok(())
}

/// The file of a report: the one that is named, or that of a run in the folder that is named, or the last one.
pub fn place(named: Option<&Path>, cache: &Cache) -> PathBuf {
    match named {
        Some(folder) if folder.is_dir() => folder.join(stored::REPORT),
        Some(file) => file.to_path_buf(),
        None => cache.path(FILE),
    }
}

/// Reads the report that a file holds.
pub fn read(file: &Path) -> Result<Report, HostError> {
    if file.ends_with(FILE) && !file.exists() {
        return Err(HostError::Usage(
            "there is no last report; run 'guardrail check DRIVER' first, or name a report with --from"
                .into(),
        ));
    }
    let bytes = files::input(file, MAX_FILE)?;
    json::read(&bytes).map_err(|why| HostError::Usage(format!("{}: {why}", file.display())))
}

/// Leaves only the findings whose fingerprints begin with one of the texts.
pub fn choose(report: &mut Report, fingerprints: &[String]) -> Result<(), HostError> {
    for wanted in fingerprints {
        let fits = report.findings.iter().filter(|finding| finding.id.starts_with(wanted.as_str()));
        match fits.count() {
            1 => {}
            0 => {
                return Err(HostError::Usage(format!(
                    "the report of {} on {} has no finding '{wanted}'; it has {}",
                    report.driver,
                    report.kernel,
                    match report.findings.len() {
                        0 => "none".to_owned(),
                        n => format!("{n}, which 'guardrail report' lists"),
                    }
                )));
            }
            n => {
                return Err(HostError::Usage(format!(
                    "{n} findings have fingerprints that begin with '{wanted}'; give more of it"
                )));
            }
        }
    }
    report
        .findings
        .retain(|finding| fingerprints.iter().any(|wanted| finding.id.starts_with(wanted.as_str())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::Finding;
    use guardrail_report::SCHEMA;

    fn report(ids: &[&str]) -> Report {
        let finding = |id: &&str| Finding { id: (*id).to_owned(), ..Finding::default() };
        let findings = ids.iter().map(finding).collect();
        Report { schema: SCHEMA.into(), driver: "drv".into(), findings, ..Report::default() }
    }

    #[test]
    fn the_last_report_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let last = || read(&place(None, &cache));
        let none = last().unwrap_err().to_string();
        assert!(none.starts_with("there is no last report; run 'guardrail check DRIVER' first"), "{none}");
        for ids in [&["a1"][..], &["b1", "b2"]] {
            keep(&report(ids), &cache).unwrap();
            assert_eq!(last().unwrap(), report(ids));
        }
        let file = folder.path().join("no.json");
        std::fs::write(&file, "{\"version\": \"2.1.0\"}").unwrap();
        let why = read(&file).unwrap_err().to_string();
        assert!(why.ends_with("a report of 'guardrail check --format json' was expected"), "{why}");
    }

    #[test]
    fn a_folder_of_a_run_stands_for_its_report() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache")).unwrap();
        let file = folder.path().join("report.json");
        assert_eq!(place(Some(folder.path()), &cache), file);
        assert_eq!(place(Some(&file), &cache), file);
        assert_eq!(place(None, &cache), cache.path(FILE));
    }

    #[test]
    fn findings_are_chosen_by_the_beginning_of_their_fingerprint() {
        let chosen = |texts: &[&str]| {
            let mut report = report(&["ab12", "ab34", "cd56"]);
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            choose(&mut report, &texts).map(|()| report.findings.len()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&["ab1", "cd56"]), Ok(2));
        assert!(
            chosen(&["ab"]).unwrap_err().starts_with("2 findings have fingerprints that begin with 'ab'")
        );
        assert!(chosen(&["x"]).unwrap_err().contains("has no finding 'x'; it has 3"));
    }
}
