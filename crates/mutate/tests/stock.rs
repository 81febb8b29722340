//! Every kind of bug in drivers of the stock kernels that the tests pin.

use guardrail_mutate::{Error, Kind, Mutant, Subject, audit};
use std::path::{Path, PathBuf};

/// A network driver, a disk driver, a filesystem.
const DRIVERS: [&str; 3] = ["e1000", "nvme", "vfat"];

/// The folders of the unpacked kernels whose images `GUARDRAIL_TEST_KERNELS` names: `kernels/RELEASE` of a cache.
fn kernels() -> Vec<PathBuf> {
    let list = std::env::var_os("GUARDRAIL_TEST_KERNELS").unwrap_or_default();
    let folder = |image: PathBuf| {
        let release = |folder: &&Path| folder.parent().is_some_and(|parent| parent.ends_with("kernels"));
        image.ancestors().find(release).map(Path::to_path_buf)
    };
    std::env::split_paths(&list).filter_map(folder).collect()
}

fn modules() -> Vec<PathBuf> {
    let (mut folders, mut found) = (kernels(), Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                _ if name.split_once(".ko").is_some_and(|(stem, _)| DRIVERS.contains(&stem)) => {
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn mutants(subject: &Subject, kind: Kind, count: usize) -> Vec<Mutant> {
    match subject.mutants(kind, 1, 5) {
        Ok(mutants) => mutants.take(count).map(|mutant| mutant.expect("a sound mutant")).collect(),
        Err(Error::NoPlace { .. }) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[ignore = "needs kernel images: set GUARDRAIL_TEST_KERNELS"]
fn every_kind_has_sound_mutants_of_stock_drivers() {
    let modules = modules();
    assert!(!modules.is_empty(), "GUARDRAIL_TEST_KERNELS names no kernel image of a cache");
    let mut without: Vec<(PathBuf, Kind)> = Vec::new();
    for path in &modules {
        let file = std::fs::read(path).expect("a module");
        let subject = Subject::parse(&path.display().to_string(), file).expect("a module");
        for kind in Kind::ALL {
            let made = mutants(&subject, kind, 40);
            println!("{} {kind}: {} places, {} mutants", name(path), subject.places(kind), made.len());
            if made.is_empty() {
                without.push((path.clone(), kind));
            }
            for mutant in &made {
                audit("the mutant", subject.stock(), &mutant.bytes).expect("what the iterator checked");
                assert!(mutant.description.bugs.iter().all(|bug| !bug.changes.is_empty()));
                let changes = mutant.description.bugs.iter().flat_map(|bug| &bug.changes);
                assert!(changes.clone().all(|change| change.old != change.new), "{:#?}", mutant.description);
            }
            assert_eq!(made[..made.len().min(5)], mutants(&subject, kind, 5)[..], "the same every time");
        }
    }
    // A network driver has places for all kinds.
    assert!(!without.iter().any(|(path, _)| name(path).starts_with("e1000")), "{without:?}");
}

fn name(path: &Path) -> String {
    let release = path.iter().rev().find(|part| part.to_string_lossy().contains("-amd64"));
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{file} {}", release.unwrap_or_default().to_string_lossy())
}
