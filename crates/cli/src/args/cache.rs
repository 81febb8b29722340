//! Arguments of `cache`.

use clap::Subcommand;
use std::path::PathBuf;

/// What `cache` does.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Write all that was fetched to a file, for a machine without network
    Export {
        /// The file
        file: PathBuf,
    },
    /// Take what such a file has and the cache lacks
    Import {
        /// The file
        file: PathBuf,
    },
}
