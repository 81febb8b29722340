//! What the user's program prints, as a file of the run folder.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const FILE: &str = "output.log";
/// The most bytes that are written. The guest limits lines as well, but nobody relies on a guest.
const MOST: usize = 16 << 20;

/// The file, which exists from the first line on.
#[derive(Debug)]
pub struct Printed {
    path: PathBuf,
    file: Option<File>,
    written: usize,
}

impl Printed {
    /// The file of a run folder.
    pub fn new(folder: &Path) -> Printed {
        Printed { path: folder.join(FILE), file: None, written: 0 }
    }

    /// Adds a line. It is on standard error already, so that a full disk loses nothing.
    pub fn line(&mut self, line: &str) {
        self.written += line.len() + 1;
        if self.written > MOST {
            return;
        }
        if self.file.is_none() {
            self.file = File::create(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            let _ = writeln!(file, "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_prints_has_a_file_which_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut printed = Printed::new(folder.path());
        assert!(!folder.path().join(FILE).exists());
        printed.line("one");
        printed.line(&"x".repeat(MOST));
        printed.line("three");
        assert_eq!(std::fs::read_to_string(folder.path().join(FILE)).unwrap(), "one\n");
    }
}
