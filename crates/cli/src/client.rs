//! `guardrail client new`: creates a client of the user's own that works from the start.

use crate::args::ClientCommand;
use crate::errors::{CliError, Status};
use crate::output;
use std::fs;
use std::path::{Path, PathBuf};

const MANIFEST: &str = include_str!("../templates/client/Cargo.toml");
const SOURCE: &str = include_str!("../templates/client/lib.rs");
/// The crates that this program was built from: a client is built against them.
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Runs a subcommand.
pub fn run(command: &ClientCommand) -> Result<Status, CliError> {
    match command {
        ClientCommand::New { name } => new(name),
    }
}

/// The folder where the client is built: that of this program's build, if it is a cargo folder, else one in
/// the client's folder.
fn target(folder: &Path) -> PathBuf {
    let program = std::env::current_exe().ok();
    let ours = program.as_deref().and_then(Path::parent).filter(|at| at.ends_with("release"));
    let ours = ours.and_then(Path::parent).filter(|at| at.join("CACHEDIR.TAG").is_file());
    ours.map_or_else(|| folder.join("target"), Path::to_path_buf)
}

fn new(name: &str) -> Result<Status, CliError> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(good) {
        return Err(CliError::Usage(format!(
            "'{name}' is no name for a client; use lower-case letters, digits, '-' and '_', such as my-client"
        )));
    }
    let folder = Path::new(name);
    if folder.exists() {
        return Err(CliError::Usage(format!("{name} exists already; choose another name, or remove it")));
    }
    let crates = fs::canonicalize(CRATES).map_err(|_| {
        CliError::Run(format!(
            "the sources that this program was built from are gone ({CRATES}); clone them again"
        ))
    })?;
    let client = crates.join("client-api");
    let source = folder.join("src");
    fs::create_dir_all(&source).map_err(CliError::io("create", source.display()))?;
    let write =
        |file: &Path, text: String| fs::write(file, text).map_err(CliError::io("write", file.display()));
    write(
        &folder.join("Cargo.toml"),
        MANIFEST.replace('@', name).replace("CLIENT", &client.display().to_string()),
    )?;
    write(&source.join("lib.rs"), SOURCE.replace('@', name))?;
    // Cargo has already fetched the versions of this program's lock file.
    let lock = crates.join("../Cargo.lock");
    if let Ok(text) = fs::read(&lock) {
        let file = folder.join("Cargo.lock");
        fs::write(&file, text).map_err(CliError::io("write", file.display()))?;
    }
    let target = target(folder);
    if target != folder.join("target") {
        let config = folder.join(".cargo");
        fs::create_dir_all(&config).map_err(CliError::io("create", config.display()))?;
        // The dependencies of this program need not be built again there.
        write(
            &config.join("config.toml"),
            format!("[build]\ntarget-dir = {:?}\n", target.display().to_string()),
        )?;
    }
    let library = target.join(format!("release/lib{}.so", name.replace('-', "_")));
    output::text(&format!(
        "{name}/src/lib.rs is a client that works. Build it and run it:\n  \
         (cd {name} && cargo build --release)\n  \
         ./guardrail profile --client {} --workload load\n",
        library.display()
    ))?;
    Ok(Status::Clean)
}
