//! Finds the runs and surveys in a folder, and parses them.
//!
//! A run is a `report.json`, or another `.json` file that calls itself a report. A survey is a folder with a `survey.json`;
//! what else lies in it belongs to the survey.

use crate::folder::{Contents, Folder, Sort};
use guardrail_report::list::MAX_FILE;
use guardrail_report::survey::{CELL_SCHEMA, Cell, Position, SCHEMA, Settings, Summary};
use guardrail_report::{Report, json};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::ffi::{OsStr, OsString};
use std::hash::{Hash, Hasher};
use std::time::SystemTime;

/// The file of a run in its folder.
const REPORT: &str = "report.json";
/// The file with the settings of a survey, and that with its table.
const SURVEY: &str = "survey.json";
const TABLE: &str = "table.json";
/// The folder of a survey's cells.
const CELLS: &str = "cells";
/// How deep folders are searched.
const MAX_DEPTH: usize = 8;
/// The most entries of folders that are looked at, and the most files that are parsed.
const MAX_ENTRIES: usize = 100_000;
const MAX_FILES: usize = 10_000;
/// The most bytes of a survey's table; it holds the reports of all its runs.
const MAX_TABLE: u64 = 256 << 20;
/// The most runs of a survey.
const MAX_CELLS: usize = 5000;
/// The most kernels of a survey, and the most findings in its table and its comparison: a page has a row for each.
const MAX_KERNELS: usize = 200;
const MAX_LINES: usize = 20_000;
/// The most bytes of a driver's and a kernel's name.
const MAX_NAME: usize = 4096;
/// The most bytes of all files together.
const MAX_BYTES: u64 = 1 << 30;
/// The most problems that are kept.
const MAX_PROBLEMS: usize = 1000;

/// A run: the report of one file.
#[derive(Debug)]
pub(crate) struct FoundRun {
    /// The file, relative to the folder that is read.
    pub(crate) place: String,
    pub(crate) report: Report,
    /// When the file was written.
    pub(crate) written: SystemTime,
}

/// A survey.
#[derive(Debug)]
pub(crate) struct FoundSurvey {
    /// The folder, relative to the one that is read; empty for itself.
    pub(crate) place: String,
    pub(crate) summary: Summary,
    pub(crate) written: SystemTime,
    /// False where runs have ended that are not in the table, or no table is there.
    pub(crate) complete: bool,
}

/// What a folder holds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) runs: Vec<FoundRun>,
    pub(crate) surveys: Vec<FoundSurvey>,
    /// Files that cannot be shown, and the rest of a sentence that says why.
    pub(crate) problems: Vec<(String, String)>,
}

/// What `survey.json` holds.
#[derive(Deserialize)]
struct Head {
    settings: Settings,
}

/// Reads all that a folder holds.
pub(crate) fn read(folder: &Folder) -> Found {
    let mut reader =
        Reader { found: Found::default(), entries: MAX_ENTRIES, files: MAX_FILES, bytes: MAX_BYTES };
    reader.folder(folder, "", MAX_DEPTH);
    reader.found
}

/// A number that changes when a file that [`read`] would look at does.
pub(crate) fn stamp(folder: &Folder) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut entries = MAX_ENTRIES;
    stamp_of(folder, MAX_DEPTH, &mut entries, &mut hasher);
    hasher.finish()
}

fn stamp_of(folder: &Folder, depth: usize, entries: &mut usize, hasher: &mut DefaultHasher) {
    let Ok((list, _)) = folder.list(*entries) else { return };
    *entries -= list.len().min(*entries);
    for (name, sort) in list {
        match sort {
            Sort::Folder if depth > 0 => {
                name.hash(hasher);
                let _ = folder.folder(&name).map(|inner| stamp_of(&inner, depth - 1, entries, hasher));
            }
            // Logs and traces of a run that goes on grow all the time.
            Sort::File if name.as_encoded_bytes().ends_with(b".json") => {
                (&name, folder.stamp(&name)).hash(hasher);
            }
            _ => {}
        }
    }
}

struct Reader {
    found: Found,
    /// What may still be looked at, parsed and read.
    entries: usize,
    files: usize,
    bytes: u64,
}

impl Reader {
    fn problem(&mut self, place: &str, why: impl Into<String>) {
        if self.found.problems.len() < MAX_PROBLEMS {
            self.found.problems.push((place.to_owned(), why.into()));
        }
    }

    /// The entries of a folder; what is left out is a problem.
    fn list(&mut self, folder: &Folder, place: &str) -> Vec<(OsString, Sort)> {
        let shown = if place.is_empty() { "the folder" } else { place };
        match folder.list(self.entries) {
            Ok((list, more)) => {
                self.entries -= list.len().min(self.entries);
                if more {
                    self.problem(shown, format!("more than {MAX_ENTRIES} entries are not looked at"));
                }
                list
            }
            Err(error) => {
                self.problem(shown, format!("it cannot be listed: {error}"));
                Vec::new()
            }
        }
    }

    /// Reads a file within what is left.
    fn file(&mut self, folder: &Folder, name: &OsStr, limit: u64) -> Result<Contents, String> {
        if self.files == 0 {
            return Err(format!("it is not read; at most {MAX_FILES} files are"));
        }
        self.files -= 1;
        let contents = folder.read(name, limit.min(self.bytes)).map_err(|why| match self.bytes < limit {
            true => format!("{why}, since at most {} MiB are read in all", MAX_BYTES >> 20),
            false => why,
        })?;
        self.bytes -= (contents.bytes.len() as u64).min(self.bytes);
        Ok(contents)
    }

    fn folder(&mut self, folder: &Folder, place: &str, depth: usize) {
        let list = self.list(folder, place);
        let is_file = |wanted: &str| list.iter().any(|(name, sort)| name == wanted && *sort == Sort::File);
        if is_file(SURVEY) {
            return self.survey(folder, place);
        }
        let of_run = is_file(REPORT);
        for (name, sort) in list {
            let at = joined(place, &name);
            match sort {
                Sort::File if name == REPORT => self.run(folder, &name, &at, true),
                // The other files of a run's folder are no reports.
                Sort::File if !of_run && at.ends_with(".json") => self.run(folder, &name, &at, false),
                Sort::Link if at.ends_with(".json") || !name.as_encoded_bytes().contains(&b'.') => {
                    self.problem(&at, "it is a link, and links are not followed");
                }
                Sort::Folder if depth == 0 => {
                    self.problem(&at, format!("folders more than {MAX_DEPTH} deep are not searched"));
                }
                Sort::Folder => match folder.folder(&name) {
                    Ok(inner) => self.folder(&inner, &at, depth - 1),
                    Err(error) => self.problem(&at, format!("it cannot be opened: {error}")),
                },
                _ => {}
            }
        }
    }

    /// Reads a report. One that is not `named` as a report counts only where it calls itself one.
    fn run(&mut self, folder: &Folder, name: &OsStr, place: &str, named: bool) {
        let contents = match self.file(folder, name, MAX_FILE) {
            Ok(contents) => contents,
            Err(why) => return self.problem(place, why),
        };
        if !named && !calls_itself_a_report(&contents.bytes) {
            return;
        }
        match parsed(&contents.bytes) {
            Ok(report) => {
                self.found.runs.push(FoundRun { place: place.to_owned(), report, written: contents.written });
            }
            Err(why) => self.problem(place, why),
        }
    }

    fn survey(&mut self, folder: &Folder, place: &str) {
        let [head_at, table_at] = [SURVEY, TABLE].map(|name| joined(place, OsStr::new(name)));
        let head = match self.file(folder, OsStr::new(SURVEY), MAX_FILE) {
            Ok(contents) => contents,
            Err(why) => return self.problem(&head_at, why),
        };
        let settings = match of_schema::<Head>(&head.bytes, SCHEMA) {
            Ok(head) => head.settings,
            Err(why) => return self.problem(&head_at, why),
        };
        let cells = folder.folder(OsStr::new(CELLS)).ok();
        let mut table = None;
        if let Some((written, _)) = folder.stamp(OsStr::new(TABLE)) {
            let contents = self.file(folder, OsStr::new(TABLE), MAX_TABLE);
            match contents.and_then(|contents| of_schema::<Summary>(&contents.bytes, SCHEMA)) {
                Ok(summary) if summary.cells.len() + summary.missing.len() > MAX_CELLS => {
                    return self.problem(&table_at, format!("it has more than {MAX_CELLS} runs"));
                }
                Ok(summary) if summary.kernels.len() > MAX_KERNELS || lines(&summary) > MAX_LINES => {
                    let limits = format!("{MAX_KERNELS} kernels or {MAX_LINES} findings");
                    return self.problem(&table_at, format!("it has more than {limits}"));
                }
                Ok(summary) => table = Some((summary, written)),
                Err(why) => self.problem(&table_at, why),
            }
        }
        let newer = cells.as_ref().and_then(|cells| self.newer(cells, place, table.as_ref()));
        let survey = match (table, newer) {
            (Some((summary, written)), None) => {
                FoundSurvey { place: place.to_owned(), summary, written, complete: true }
            }
            (table, newer) => {
                let written = newer.unwrap_or(head.written);
                let places = table.map(|(summary, _)| places(&summary)).unwrap_or_default();
                let cells = cells.map(|cells| self.cells(&cells, place)).unwrap_or_default();
                let summary = summary_of(settings, places, &cells);
                FoundSurvey { place: place.to_owned(), summary, written, complete: false }
            }
        };
        self.found.surveys.push(survey);
    }

    /// When the last of the cells was written that a table does not have and that are newer than it; `None` without such
    /// ones. An older one may be left from a survey of more drivers, and times alone say little of a folder that was copied.
    fn newer(
        &mut self,
        cells: &Folder,
        place: &str,
        table: Option<&(Summary, SystemTime)>,
    ) -> Option<SystemTime> {
        let in_table = table.iter().flat_map(|(summary, _)| &summary.cells);
        let known: BTreeSet<String> =
            in_table.map(|cell| format!("{}.json", cell.place.file_stem())).collect();
        let list = self.list(cells, &joined(place, OsStr::new(CELLS)));
        let unknown = list.iter().filter(|(name, _)| {
            let name = name.to_string_lossy();
            name.ends_with(".json") && !name.starts_with('.') && !known.contains(&*name)
        });
        let stamps = unknown.filter_map(|(name, _)| Some(cells.stamp(name)?.0));
        stamps.filter(|written| table.is_none_or(|(_, of_table)| written > of_table)).max()
    }

    fn cells(&mut self, folder: &Folder, place: &str) -> Vec<Cell> {
        let place = joined(place, OsStr::new(CELLS));
        let mut cells = Vec::new();
        for (name, sort) in self.list(folder, &place) {
            let at = joined(&place, &name);
            // A file that is being written begins with a dot.
            if sort != Sort::File || !at.ends_with(".json") || name.to_string_lossy().starts_with('.') {
                continue;
            }
            let contents = self.file(folder, &name, MAX_FILE);
            match contents.and_then(|contents| of_schema::<Cell>(&contents.bytes, CELL_SCHEMA)) {
                Ok(cell) if cells.len() < MAX_CELLS => cells.push(cell),
                Ok(_) => self.problem(&at, format!("it is left out; a survey has at most {MAX_CELLS} runs")),
                Err(why) => self.problem(&at, why),
            }
        }
        cells
    }
}

/// How many findings a table has, with those of its comparison.
fn lines(summary: &Summary) -> usize {
    let of_diff = summary
        .diff
        .iter()
        .map(|diff| diff.new.len() + diff.gone.len() + diff.same.len() + diff.unknown.len());
    summary.findings.len() + of_diff.sum::<usize>()
}

/// All places of a table.
fn places(summary: &Summary) -> Vec<Position> {
    summary.cells.iter().map(|cell| &cell.place).chain(&summary.missing).cloned().collect()
}

/// The survey of these cells: first the places of an earlier table, then new ones.
fn summary_of(settings: Settings, mut places: Vec<Position>, cells: &[Cell]) -> Summary {
    for cell in cells {
        if !places.contains(&cell.place) {
            places.push(cell.place.clone());
        }
    }
    Summary::new(settings, &places, cells)
}

fn joined(place: &str, name: &OsStr) -> String {
    let name = name.to_string_lossy();
    if place.is_empty() { name.into_owned() } else { format!("{place}/{name}") }
}

/// Whether JSON is meant to be a report of a run, of whatever version: the schema is its first field.
fn calls_itself_a_report(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).replace([' ', '\n', '\r', '\t'], "");
    head.starts_with("{\"schema\":\"guardrail/")
}

/// The schema of any of the formats.
#[derive(Deserialize)]
struct Schema {
    schema: String,
}

/// Parses a report. A report of another version, one that was cut and what is no JSON have a reason each.
fn parsed(bytes: &[u8]) -> Result<Report, String> {
    schema_of(bytes, guardrail_report::SCHEMA)?;
    let report = json::read(bytes)?;
    // Each page of a finding has them several times.
    match report.driver.len().max(report.kernel.len()) {
        ..=MAX_NAME => Ok(report),
        _ => Err(format!("the name of its driver or kernel has more than {MAX_NAME} bytes")),
    }
}

fn of_schema<T: for<'a> Deserialize<'a>>(bytes: &[u8], wanted: &str) -> Result<T, String> {
    schema_of(bytes, wanted)?;
    serde_json::from_slice(bytes).map_err(|error| format!("line {}: {}", error.line(), json::message(&error)))
}

/// Refuses what is no whole JSON, and another schema.
fn schema_of(bytes: &[u8], wanted: &str) -> Result<(), String> {
    let Schema { schema } = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof if bytes.trim_ascii().is_empty() => "it is empty".to_owned(),
        serde_json::error::Category::Eof => {
            format!("it is cut short: it ends in line {}, before its last bracket", error.line())
        }
        serde_json::error::Category::Data => "it is JSON of something else: it has no schema".to_owned(),
        _ => format!("line {}: it is not JSON: {}", error.line(), json::message(&error)),
    })?;
    let newer = |schema: &str| -> Option<bool> {
        let (name, version) = wanted.split_once('/')?;
        let theirs: u64 = schema.strip_prefix(name)?.strip_prefix('/')?.parse().ok()?;
        Some(theirs > version.parse().ok()?)
    };
    match newer(&schema) {
        _ if schema == wanted => Ok(()),
        Some(true) => Err(format!(
            "it has the schema {schema:?}, which is newer than this version of guardrail, which reads {wanted:?}"
        )),
        _ => Err(format!("it has the schema {schema:?}, but {wanted:?} was expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_has_its_reason() {
        let why = |text: &str| parsed(text.as_bytes()).unwrap_err();
        assert_eq!(why(" \n"), "it is empty");
        assert_eq!(
            why("{\"schema\":\"guardrail/1\",\n\"driver\":"),
            "it is cut short: it ends in line 2, before its last bracket"
        );
        assert!(why("\u{7f}ELF").starts_with("line 1: it is not JSON: expected value"));
        assert_eq!(why("[1]"), "it is JSON of something else: it has no schema");
        assert_eq!(why("{}"), "it is JSON of something else: it has no schema");
        assert_eq!(
            why(r#"{"schema":"guardrail/2","driver":3}"#),
            "it has the schema \"guardrail/2\", which is newer than this version of guardrail, which reads \"guardrail/1\""
        );
        assert!(why(r#"{"schema":"guardrail-survey/1"}"#).ends_with("but \"guardrail/1\" was expected"));
        assert!(why(r#"{"schema":"guardrail/1","driver":3}"#).contains("invalid type"));
        assert!(
            why(&"[".repeat(100_000)).contains("recursion limit")
                || why(&"[".repeat(100_000)).contains("no schema")
        );
    }

    #[test]
    fn only_reports_call_themselves_reports() {
        assert!(calls_itself_a_report(b"{\n  \"schema\": \"guardrail/7\","));
        assert!(!calls_itself_a_report(b"{\"schema\":\"guardrail-diff/1\"}"));
        assert!(!calls_itself_a_report(b"\xff\xfe"));
    }
}
