//! `guardrail cache`: carries what was fetched to a machine without network.

use crate::args::CacheCommand;
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_host::Progress;
use guardrail_vm::{Cache, carried};

/// Writes or reads a file, and prints what it carried.
pub fn run(command: &CacheCommand) -> Result<Status, CliError> {
    let (cache, progress) = (Cache::open()?, Progress::shown());
    let names = match command {
        CacheCommand::Export { file } => {
            progress.step(&format!("packing {}", cache.root().display()));
            carried::export(&cache, file)?
        }
        CacheCommand::Import { file } => {
            progress.step(&format!("unpacking {}", file.display()));
            carried::import(&cache, file)?
        }
    };
    progress.finish();
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    output::text(&lines)?;
    Ok(Status::Clean)
}
