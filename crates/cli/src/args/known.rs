//! Options of `check` and `analyze` about findings that are known or accepted, and arguments of `diff`.

use crate::args::choice::FailOnParser;
use clap::{Args, ValueEnum};
use guardrail_check::known::KnownPlan;
use guardrail_report::fail_on::FailOn;
use std::path::{Path, PathBuf};

/// Which findings are known or accepted.
#[derive(Debug, Args)]
pub struct KnownArgs {
    /// Take the findings that FILE has for known: they are marked, and not shown as text
    #[arg(long, value_name = "FILE", conflicts_with = "against")]
    pub baseline: Option<PathBuf>,
    /// Write the findings to FILE as a baseline, one finding a line
    #[arg(long, value_name = "FILE")]
    pub write_baseline: Option<PathBuf>,
    /// Accept the findings that FILE lists, each with a reason; may be given several times, besides those that ./guardrail.toml names
    #[arg(long, value_name = "FILE")]
    pub suppress: Vec<PathBuf>,
    /// Compare the result with an earlier report (JSON or SARIF), as 'guardrail diff' does
    #[arg(long, value_name = "REPORT")]
    pub against: Option<PathBuf>,
    /// Which findings make the exit status 1 [default: warning]
    #[arg(long, value_name = "WHICH", value_parser = FailOnParser)]
    pub fail_on: Option<FailOn>,
}

impl KnownArgs {
    /// The plan that the arguments describe. The policy is the file that the user named.
    pub fn plan(&self, policy: Option<&Path>) -> KnownPlan {
        KnownPlan {
            baseline: self.baseline.clone(),
            write_baseline: self.write_baseline.clone(),
            against: self.against.clone(),
            suppress: self.suppress.clone(),
            fail_on: self.fail_on.clone(),
            policy: policy.map(Path::to_path_buf),
        }
    }
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The earlier report, JSON or SARIF of 'check', 'analyze' or any other command
    #[arg(value_name = "A")]
    pub earlier: PathBuf,
    /// The later report, of the same driver
    #[arg(value_name = "B")]
    pub later: PathBuf,
    /// How the comparison is printed
    #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
    pub format: DiffFormat,
}

/// How a comparison is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// For people
    Text,
    /// One object, schema guardrail-diff/1
    Json,
}
