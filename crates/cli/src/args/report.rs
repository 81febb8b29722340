//! Arguments of `report`.

use crate::args::Format;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The findings to print in full: their fingerprints, or how these begin [default: a screen about all]
    #[arg(value_name = "FINGERPRINT")]
    pub fingerprints: Vec<String>,
    /// A report of 'check --format json' or of its --out folder, instead of the last run's
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Print all findings in full
    #[arg(long)]
    pub full: bool,
    /// Print one finding as a mail to the list of its driver
    #[arg(long, conflicts_with_all = ["full", "format"])]
    pub mail: bool,
    /// A report of the driver in another build or kernel: the mail says whether that run found the same
    #[arg(long, value_name = "FILE", requires = "mail")]
    pub other_build: Option<PathBuf>,
    /// How they are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}
