//! Options of `check` and `analyze` about how the report is printed and written.

use clap::{Args, ValueEnum};
use guardrail_host::{HostError, files};
use std::path::PathBuf;

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One object, schema guardrail/1
    Json,
    /// SARIF 2.1.0
    Sarif,
    /// JUnit XML
    Junit,
    /// The format of the kernel's own tests
    Ktap,
    /// The findings for merge requests of GitLab
    CodeQuality,
    /// One page with everything in it, for a browser
    Html,
}

/// How the report is printed, and where else it goes.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print all findings in full as text, however many there are
    #[arg(long)]
    pub full: bool,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Also write the report to FILE in this format (junit=results.xml); may be given several times
    #[arg(long = "output", value_name = "FORMAT=FILE", value_parser = parse)]
    pub written: Vec<Written>,
}

/// A file that gets the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The format.
    pub format: Format,
    /// The file.
    pub file: PathBuf,
}

fn parse(text: &str) -> Result<Written, String> {
    let (format, file) = text.split_once('=').ok_or("expected FORMAT=FILE, such as junit=results.xml")?;
    if file.is_empty() {
        return Err("no file is named after '='".to_owned());
    }
    let format = Format::from_str(format, false).map_err(|_| {
        let values = Format::value_variants().iter().filter_map(Format::to_possible_value);
        let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        format!("there is no format '{format}'; there are {}", names.join(", "))
    })?;
    Ok(Written { format, file: PathBuf::from(file) })
}

impl OutputArgs {
    /// The files that get the report.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.written.iter().map(|written| &written.file)
    }

    /// Refuses files that could not be written, before a run that would end without them.
    pub fn refuse(&self) -> Result<(), HostError> {
        for Written { file, .. } in &self.written {
            files::refuse_without_folder("--output", file)?;
            if file.is_dir() {
                return Err(HostError::Usage(format!("--output: {} is a folder", file.display())));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_and_a_file_are_named() {
        let written = parse("junit=a=b.xml").unwrap();
        assert_eq!((written.format, written.file), (Format::Junit, PathBuf::from("a=b.xml")));
        assert_eq!(parse("junit").unwrap_err(), "expected FORMAT=FILE, such as junit=results.xml");
        assert_eq!(parse("ktap=").unwrap_err(), "no file is named after '='");
        let unknown = parse("xml=x").unwrap_err();
        assert_eq!(
            unknown,
            "there is no format 'xml'; there are text, json, sarif, junit, ktap, code-quality, html"
        );
    }

    #[test]
    fn files_that_could_not_be_written_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refuse = |file: PathBuf| {
            let written = vec![Written { format: Format::Ktap, file }];
            OutputArgs { full: false, format: Format::Text, written }.refuse()
        };
        assert!(refuse(folder.path().join("x")).is_ok() && refuse("x".into()).is_ok());
        assert!(refuse(folder.path().join("no/x")).unwrap_err().to_string().contains("there is no folder"));
        assert!(refuse(folder.path().to_path_buf()).unwrap_err().to_string().ends_with("is a folder"));
    }
}
