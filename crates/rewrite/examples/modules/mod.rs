//! Walks the modules below the folders that a command line names.

use guardrail_rewrite::RewriteError;
use std::path::{Path, PathBuf};

/// Does something with each file, by its name and content. Prints what could not be done, and how often.
pub fn each(done: &str, mut work: impl FnMut(&str, Vec<u8>) -> Result<(), RewriteError>) {
    let mut files = Vec::new();
    for folder in std::env::args_os().skip(1) {
        find(Path::new(&folder), &mut files);
    }
    files.sort();
    let (mut good, mut bad) = (0, 0);
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let read = std::fs::read(&file).map_err(|error| error.to_string());
        match read.and_then(|data| work(&name, data).map_err(|error| error.to_string())) {
            Ok(()) => good += 1,
            Err(error) => {
                bad += 1;
                println!("{name}: {error}");
            }
        }
    }
    println!("{good} {done}, {bad} not");
}

/// Finds the modules below a folder; a file stands for itself.
pub fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    if folder.is_file() {
        return files.push(folder.to_path_buf());
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, files);
        } else if path.to_string_lossy().contains(".ko") {
            files.push(path);
        }
    }
}
