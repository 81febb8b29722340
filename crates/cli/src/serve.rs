//! `guardrail serve`.

use crate::args::ServeArgs;
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_check::{confine, only_serving};
use guardrail_site::{Counts, Port, Server, Site, SiteError, write};
use std::path::Path;

/// Shows results to a browser until the program is ended, or writes them as pages.
pub fn run(args: &ServeArgs) -> Result<Status, CliError> {
    match &args.written {
        Some(out) => written(&args.folder, out),
        None => {
            let port = Port::open(args.port).map_err(error)?;
            // What is read from here on is not trusted.
            only_serving(&args.folder)?;
            let server = Server::new(port, &args.folder).map_err(error)?;
            let shown = shown(server.counts(), &args.folder);
            output::text(&format!("http://{}/ shows {shown}; Ctrl-C ends it\n", server.address()))?;
            server.run()
        }
    }
}

fn written(folder: &Path, out: &Path) -> Result<Status, CliError> {
    std::fs::create_dir_all(out).map_err(CliError::io("create", out.display()))?;
    confine(&[folder.to_path_buf()], &[out.to_path_buf()])?;
    let site = Site::read(folder).map_err(error)?;
    let pages = write(&site, out).map_err(error)?;
    let index = out.join("index.html");
    output::text(&format!(
        "{} is the first of {pages} pages about {}\n",
        index.display(),
        shown(site.counts(), folder)
    ))?;
    Ok(Status::Clean)
}

/// Such as `3 runs and 1 survey of results`.
fn shown(counts: Counts, folder: &Path) -> String {
    let of = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    let mut text = format!("{} and {}", of(counts.runs, "run"), of(counts.surveys, "survey"));
    if counts.problems > 0 {
        text += &format!(" (and why {} cannot be shown)", of(counts.problems, "file"));
    }
    format!("{text} of {}", folder.display())
}

fn error(error: SiteError) -> CliError {
    match error.is_usage() {
        true => CliError::Usage(error.to_string()),
        false => CliError::Run(error.to_string()),
    }
}
