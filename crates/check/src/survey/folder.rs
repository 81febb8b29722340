//! The files in the folder of a survey.

use guardrail_host::HostError;
use guardrail_host::files::{self, json, write};
use guardrail_report::survey::{CELL_SCHEMA, Cell, Position, SCHEMA, Settings, Summary};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The folder that a survey writes to.
pub struct Folder {
    path: PathBuf,
}

/// The contents of `survey.json`.
#[derive(Serialize, Deserialize)]
struct Head {
    schema: String,
    settings: Settings,
}

impl Folder {
    /// Opens a folder, and creates it if absent. One that holds a survey with other settings is refused.
    pub fn open(path: &Path, settings: &Settings) -> Result<Folder, HostError> {
        let path = std::path::absolute(path).map_err(HostError::io("find", path.display()))?;
        for folder in ["cells", "runs"].map(|name| path.join(name)) {
            fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        }
        let folder = Folder { path };
        let file = folder.path.join("survey.json");
        match read::<Head>(&file) {
            None => {
                let head = Head { schema: SCHEMA.to_owned(), settings: settings.clone() };
                write(&file, &json(&head)?)?;
            }
            Some(head) if head.settings == *settings => {}
            Some(_) => {
                return Err(HostError::Usage(format!(
                    "{} holds a survey with another mode, other checkers, workload, variables or CPUs; give another folder",
                    folder.path.display()
                )));
            }
        }
        Ok(folder)
    }

    /// The summary that a survey left in a folder.
    pub fn summary_of(path: &Path) -> Result<Summary, HostError> {
        let file = path.join("table.json");
        read::<Summary>(&file).filter(|summary| summary.schema == SCHEMA).ok_or_else(|| {
            HostError::Usage(format!("{} holds no finished survey (table.json)", path.display()))
        })
    }

    /// The cell of a run that ended; `None` also for a damaged file, and for a run of another kernel or driver by the
    /// same name, as after an update. Such runs are done again.
    pub fn cell(&self, place: &Position, digest: &str) -> Option<Cell> {
        let cell: Cell = read(&self.cell_file(place))?;
        (cell.schema == CELL_SCHEMA && cell.place == *place && cell.digest == digest).then_some(cell)
    }

    /// Writes a cell to the folder.
    pub fn keep(&self, cell: &Cell) -> Result<(), HostError> {
        write(&self.cell_file(&cell.place), &json(cell)?)
    }

    /// The folder for a run's files.
    pub fn run(&self, place: &Position) -> PathBuf {
        self.path.join("runs").join(place.file_stem())
    }

    /// Writes the table in all formats.
    pub fn write_tables(&self, summary: &Summary) -> Result<(), HostError> {
        let (mut text, mut object, mut page) = (Vec::new(), Vec::new(), Vec::new());
        summary
            .write_text(&mut text)
            .and_then(|()| summary.write_json(&mut object))
            .and_then(|()| summary.write_html(&mut page))
            .map_err(HostError::io("write", "the table"))?;
        write(&self.path.join("table.txt"), &text)?;
        write(&self.path.join("table.json"), &object)?;
        write(&self.path.join("table.html"), &page)
    }

    fn cell_file(&self, place: &Position) -> PathBuf {
        self.path.join("cells").join(format!("{}.json", place.file_stem()))
    }
}

/// Reads one of the survey's files; `None` where it is absent or damaged.
fn read<T: for<'a> Deserialize<'a>>(file: &Path) -> Option<T> {
    serde_json::from_slice(&files::read(file)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_report::survey::State;

    fn settings() -> Settings {
        Settings { tools: vec!["dmcheck".into()], smp: 2, ..Settings::default() }
    }

    #[test]
    fn cells_are_kept_across_surveys_and_damaged_ones_are_not_taken() {
        let temp = tempfile::tempdir().unwrap();
        let place = Position { driver: "e1000".into(), device: None, kernel: "6.1".into() };
        let cell = Cell {
            schema: CELL_SCHEMA.into(),
            place: place.clone(),
            digest: "a".into(),
            state: State::Clean,
            ..Cell::default()
        };
        let folder = Folder::open(temp.path(), &settings()).unwrap();
        assert_eq!(folder.cell(&place, "a"), None);
        folder.keep(&cell).unwrap();
        let again = Folder::open(temp.path(), &settings()).unwrap();
        assert_eq!(again.cell(&place, "a"), Some(cell));
        assert_eq!(again.cell(&place, "b"), None);
        let other = Position { kernel: "7.2".into(), ..place.clone() };
        assert_eq!(again.cell(&other, "a"), None);
        fs::write(again.cell_file(&place), "{\"schema\":").unwrap();
        assert_eq!(again.cell(&place, "a"), None);
    }

    #[test]
    fn a_folder_with_another_survey_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        Folder::open(temp.path(), &settings()).unwrap();
        let other = Settings { workload: Some("full".into()), ..settings() };
        let error = Folder::open(temp.path(), &other).err().unwrap();
        assert!(error.to_string().contains("other checkers, workload"));
    }

    #[test]
    fn an_earlier_survey_is_read_from_its_table() {
        let temp = tempfile::tempdir().unwrap();
        assert!(Folder::summary_of(temp.path()).is_err());
        let folder = Folder::open(temp.path(), &settings()).unwrap();
        let summary = Summary::new(settings(), &[], &[]);
        folder.write_tables(&summary).unwrap();
        assert_eq!(Folder::summary_of(temp.path()).unwrap(), summary);
    }
}
