//! Arguments of `serve`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A folder of 'check --out' or 'survey --out', or one that holds such folders
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The port at 127.0.0.1 that a browser asks; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 8470)]
    pub port: u16,
    /// Write the pages as files to OUT, a new or empty folder, instead of serving them
    #[arg(long = "static", value_name = "OUT", conflicts_with = "port")]
    pub written: Option<PathBuf>,
}
