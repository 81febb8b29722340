//! The files in the folder of a campaign.

use super::verdict::Judged;
use guardrail_host::HostError;
use guardrail_host::files::{json, read, write};
use guardrail_mutate::Mutant;
use guardrail_report::{self as report, Report};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The version of the files of a campaign.
pub const SCHEMA: &str = "guardrail-inject/1";

/// Whether a module runs guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// The module is unchanged.
    Plain,
    /// The module has the checks that `guardrail guard` adds.
    Guarded,
}

impl Protection {
    /// All ways, in the order in which a mutant runs.
    pub const ALL: [Protection; 2] = [Protection::Plain, Protection::Guarded];

    /// The word for the way in files and tables.
    pub fn word(self) -> &'static str {
        match self {
            Protection::Plain => "plain",
            Protection::Guarded => "guarded",
        }
    }
}

/// The settings that all runs of a campaign have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The version of these files, [`SCHEMA`].
    pub schema: String,
    /// The driver's name.
    pub driver: String,
    /// The modules that share the driver's domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The stock driver's digest.
    pub stock: String,
    /// The QEMU device; `None` without one.
    pub device: Option<String>,
    /// The workload's name.
    pub workload: String,
    /// The digest of the workload's script.
    pub script: String,
    /// The variables of the workload.
    pub variables: Vec<(String, String)>,
    /// Number of guest CPUs.
    pub smp: u8,
    /// Longest time of a run, in seconds.
    pub timeout: u64,
}

/// One line of `results.jsonl`: a run that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The mutant's name; `stock` for the original driver.
    pub mutant: String,
    /// The kind of the mutant's bugs.
    pub kind: String,
    /// The digest of what ran: the mutant, or the guarded mutant with all that it depended on.
    pub digest: String,
    /// Whether it ran guarded.
    pub way: Protection,
    /// The verdict and its evidence.
    #[serde(flatten)]
    pub judged: Judged,
    /// The violations that the runtime reported of a guarded driver: kind and place of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// The time from the start of QEMU to its end.
    pub seconds: f64,
}

/// A campaign's folder, or one that has mutants only.
pub struct Folder {
    path: PathBuf,
    /// Held to write one line at a time.
    results: Mutex<()>,
}

impl Folder {
    /// Opens a folder, and creates it if absent.
    pub fn open(path: &Path) -> Result<Folder, HostError> {
        let path = std::path::absolute(path).map_err(HostError::io("find", path.display()))?;
        let mutants = path.join("mutants");
        fs::create_dir_all(&mutants).map_err(HostError::io("create", mutants.display()))?;
        Ok(Folder { path, results: Mutex::default() })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a campaign, or continues one that has the same settings.
    pub fn begin(&self, settings: &Settings) -> Result<(), HostError> {
        let file = self.path.join("campaign.json");
        match read(&file).and_then(|text| serde_json::from_slice::<Settings>(&text).ok()) {
            None => write(&file, json(settings)?),
            Some(known) if known == *settings => Ok(()),
            Some(_) => Err(HostError::Usage(format!(
                "{} holds a campaign with another driver, domain, kernel, device, workload or limit; give another folder",
                self.path.display()
            ))),
        }
    }

    /// Writes a mutant and its description.
    pub fn keep_mutant(&self, mutant: &Mutant) -> Result<(), HostError> {
        let name = mutant.description.name();
        write(&self.mutant(&name), &mutant.bytes)?;
        write(&self.path.join("mutants").join(format!("{name}.json")), json(&mutant.description)?)
    }

    /// The path of a mutant's file.
    pub fn mutant(&self, name: &str) -> PathBuf {
        self.path.join("mutants").join(format!("{name}.ko"))
    }

    /// Creates an empty folder for a run.
    pub fn run(&self, name: &str, way: Protection) -> Result<PathBuf, HostError> {
        let folder = self.run_folder(name, way);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        Ok(folder)
    }

    /// The path of a run's folder.
    pub fn run_folder(&self, name: &str, way: Protection) -> PathBuf {
        self.path.join("runs").join(format!("{name}.{}", way.word()))
    }

    /// The runs that ended; incomplete lines are ignored.
    pub fn lines(&self) -> Vec<Line> {
        let text = read(&self.results_file()).unwrap_or_default();
        text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    /// Adds the line of a run that ended.
    pub fn add(&self, line: &Line) -> Result<(), HostError> {
        let _one = self.results.lock().unwrap_or_else(|error| error.into_inner());
        let file = self.results_file();
        // A line that was cut off earlier is ended first.
        let whole = read(&file).is_none_or(|text| text.last().is_none_or(|&last| last == b'\n'));
        let mut text = if whole { Vec::new() } else { vec![b'\n'] };
        text.extend(serde_json::to_vec(line).map_err(|error| HostError::Run(error.to_string()))?);
        text.push(b'\n');
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&file)
            .and_then(|mut file| file.write_all(&text))
            .map_err(HostError::io("write", file.display()))
    }

    /// Writes the table.
    pub fn write_table(&self, text: &str) -> Result<(), HostError> {
        write(&self.path.join("table.txt"), text.as_bytes())
    }

    /// Writes a report in all formats, as `NAME.txt`, `NAME.json` and `NAME.sarif` in a folder of the campaign.
    pub fn write_report(folder: &Path, name: &str, report: &Report) -> Result<(), HostError> {
        type Write = fn(&Report, &mut dyn std::io::Write) -> std::io::Result<()>;
        let formats: [(&str, Write); 3] =
            [("txt", report::text::write), ("json", report::json::write), ("sarif", report::sarif::write)];
        for (ending, print) in formats {
            let (file, mut text) = (folder.join(format!("{name}.{ending}")), Vec::new());
            print(report, &mut text).map_err(HostError::io("write", file.display()))?;
            write(&file, &text)?;
        }
        Ok(())
    }

    /// The report of a guarded run; `None` where the run left none.
    pub fn report(&self, name: &str) -> Option<Report> {
        report::json::read(&read(&self.run_folder(name, Protection::Guarded).join("report.json"))?).ok()
    }

    fn results_file(&self) -> PathBuf {
        self.path.join("results.jsonl")
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{How, Verdict};
    use super::*;

    fn line(mutant: &str) -> Line {
        let judged = Judged {
            verdict: Verdict::Escaped,
            how: Some(How::Crash),
            why: "BUG".into(),
            at: Some("kfree+0x1/0x2".into()),
            step: "ping".into(),
        };
        Line {
            mutant: mutant.into(),
            kind: "k".into(),
            digest: "1".into(),
            way: Protection::Plain,
            judged,
            violations: Vec::new(),
            seconds: 1.5,
        }
    }

    #[test]
    fn results_survive_a_line_that_was_cut() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::open(temp.path()).unwrap();
        assert!(folder.lines().is_empty());
        folder.add(&line("a")).unwrap();
        let file = folder.results_file();
        let mut text = fs::read(&file).unwrap();
        text.extend(b"{\"mutant\":\"b\",\"dig");
        fs::write(&file, text).unwrap();
        folder.add(&line("c")).unwrap();
        assert_eq!(Folder::open(temp.path()).unwrap().lines(), [line("a"), line("c")]);
    }

    #[test]
    fn another_campaign_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::open(temp.path()).unwrap();
        let settings = Settings {
            schema: SCHEMA.into(),
            driver: "e1000".into(),
            with: Vec::new(),
            kernel: "6.1".into(),
            stock: "1".into(),
            device: None,
            workload: "network".into(),
            script: "2".into(),
            variables: Vec::new(),
            smp: 2,
            timeout: 1,
        };
        folder.begin(&settings).unwrap();
        folder.begin(&settings).unwrap();
        let other = Settings { workload: "load".into(), ..settings };
        let error = folder.begin(&other).unwrap_err().to_string();
        assert!(error.contains("another driver, domain, kernel, device, workload"), "{error}");
    }
}
