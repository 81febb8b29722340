//! Drivers of the kernel's own source: which files make one, by the Makefile of its folder.

use guardrail_vm::error::suggest;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folders of the source that are searched for drivers.
pub const FOLDERS: [&str; 3] = ["drivers/net", "drivers/ata", "drivers/scsi"];
/// The largest Makefile or configuration that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// How deep folders are searched below one of [`FOLDERS`].
const DEPTH: u32 = 8;

/// A driver of the kernel's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// The name of its module, as its Makefile writes it.
    pub name: String,
    /// Its C files.
    pub files: Vec<PathBuf>,
    /// Folders for headers that the Makefile names.
    pub folders: Vec<PathBuf>,
    /// Macros that the Makefile defines, as `NAME` or `NAME=VALUE`.
    pub definitions: Vec<String>,
}

/// The options that are set in the configuration of a kernel: the file `.config` beside its headers.
pub fn options(headers: &Path) -> BTreeSet<String> {
    let text = read(&headers.join(".config")).unwrap_or_default();
    let set = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        matches!(value, "y" | "m").then(|| name.to_owned())
    });
    set.collect()
}

/// Finds the driver `name` in the source of a kernel. `options` decides about files that not every configuration has.
pub fn find(source: &Path, options: &BTreeSet<String>, name: &str) -> Result<Driver, String> {
    let mut known = BTreeSet::new();
    for folder in FOLDERS {
        let mut found = Vec::new();
        search(&source.join(folder), DEPTH, &mut |folder, makefile| {
            if let Some(object) = makefile.object(name, &mut known) {
                found.push(driver(source, folder, makefile, options, &object));
            }
        });
        if let Some(driver) = found.into_iter().next() {
            return driver;
        }
    }
    let near = suggest(name, known.iter().map(String::as_str));
    let hint = match near.is_empty() {
        true => format!("give its C files instead, or a driver of {}", FOLDERS.join(", ")),
        false => format!("the nearest names are {}", near.join(", ")),
    };
    Err(format!("the source of this kernel has no driver '{name}'; {hint}"))
}

fn read(path: &Path) -> Option<String> {
    let length = std::fs::metadata(path).ok()?.len();
    (length <= LARGEST).then(|| std::fs::read(path).ok())?.map(|b| String::from_utf8_lossy(&b).into_owned())
}

/// Calls `each` with every folder that has a Makefile, in the order of their names.
fn search(folder: &Path, depth: u32, each: &mut dyn FnMut(&Path, &Makefile)) {
    if let Some(text) = read(&folder.join("Makefile")) {
        each(folder, &Makefile::new(&text));
    }
    if depth == 0 {
        return;
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
    below.sort();
    for folder in below {
        search(&folder, depth - 1, each);
    }
}

/// One name for modules whose names differ in `-` and `_`, which the kernel takes for the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// The assignments of a Makefile: the name that is assigned, and words.
struct Makefile {
    lines: Vec<(String, Vec<String>)>,
}

impl Makefile {
    fn new(text: &str) -> Makefile {
        let mut lines = Vec::new();
        let joined = text.replace("\\\n", " ");
        for line in joined.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((name, words)) = line.split_once('=') else { continue };
            let name = name.trim_end_matches([':', '+', '?', ' ', '\t']).trim();
            if !name.is_empty() && !name.contains(char::is_whitespace) {
                lines.push((name.to_owned(), words.split_whitespace().map(str::to_owned).collect()));
            }
        }
        Makefile { lines }
    }

    /// The module `name` as the Makefile writes it; `known` collects the names of all modules.
    fn object(&self, name: &str, known: &mut BTreeSet<String>) -> Option<String> {
        let mut found = None;
        for (_, words) in self.lines.iter().filter(|(assigned, _)| assigned.starts_with("obj-")) {
            let names: Vec<String> =
                words.iter().filter_map(|word| word.strip_suffix(".o")).map(str::to_owned).collect();
            // Others on the line are modules of their own, whose callbacks are not this driver's.
            found = found.or_else(|| names.iter().find(|one| canonical(one) == canonical(name)).cloned());
            known.extend(names);
        }
        found
    }

    /// The words that are assigned to a name, where `options` has the option in it.
    fn words<'m>(
        &'m self,
        stem: &'m str,
        endings: &'m [&'m str],
        options: &'m BTreeSet<String>,
    ) -> impl Iterator<Item = &'m String> {
        let wanted = move |name: &str| {
            let Some(rest) = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')) else {
                return false;
            };
            let option = rest.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')'));
            endings.contains(&rest) || option.is_some_and(|option| options.contains(option))
        };
        self.lines.iter().filter(move |(name, _)| wanted(name)).flat_map(|(_, words)| words)
    }
}

fn driver(
    source: &Path,
    folder: &Path,
    makefile: &Makefile,
    options: &BTreeSet<String>,
    object: &str,
) -> Result<Driver, String> {
    let mut driver = Driver { name: object.to_owned(), ..Driver::default() };
    let parts: Vec<&String> = makefile.words(object, &["objs", "y"], options).collect();
    let names: Vec<String> = match parts.is_empty() {
        true => vec![object.to_owned()],
        false => parts.into_iter().filter_map(|part| part.strip_suffix(".o")).map(str::to_owned).collect(),
    };
    for part in names {
        let file = folder.join(format!("{part}.c"));
        if part.contains("..") || part.starts_with('/') || part.contains('$') || !file.is_file() {
            let makefile = folder.join("Makefile");
            return Err(format!(
                "{} builds {object} from {part}.o, but {part}.c is not beside it; give the driver's C files instead",
                makefile.display()
            ));
        }
        if !driver.files.contains(&file) {
            driver.files.push(file);
        }
    }
    if driver.files.is_empty() {
        return Err(format!("{} names no C file of {object}", folder.join("Makefile").display()));
    }
    let below = folder.strip_prefix(source).unwrap_or(folder).display().to_string();
    let mut folder_follows = false;
    for word in makefile.words("ccflags", &["y"], options) {
        let text = word.replace("$(srctree)/$(src)", &folder.display().to_string());
        let text = text.replace("$(srctree)", &source.display().to_string());
        let text = text.replace("$(src)", &source.join(&below).display().to_string());
        if let Some(path) = text.strip_prefix("-I").or_else(|| folder_follows.then_some(&text)) {
            folder_follows = path.is_empty();
            if !path.is_empty() && !path.contains('$') {
                driver.folders.push(PathBuf::from(path));
            }
        } else if let Some(definition) = text.strip_prefix("-D").filter(|text| !text.contains('$')) {
            driver.definitions.push(definition.to_owned());
        }
    }
    Ok(driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn names(driver: &Driver) -> Vec<String> {
        driver.files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_makefile_says_which_files_make_a_driver() {
        let folder = tree(&[
            (
                "drivers/net/a/Makefile",
                "obj-$(CONFIG_A) += a-b.o\nobj-$(CONFIG_C) += c.o d.o # note\n a-b-objs := one.o \\\n\ttwo.o\na-b-$(CONFIG_X) += three.o\na-b-$(CONFIG_Y) += four.o\nccflags-y += -I $(srctree)/include/x -I$(src) -DSIZE=3 -Werror\nccflags-$(CONFIG_X) := -DX\n",
            ),
            ("drivers/net/a/one.c", ""),
            ("drivers/net/a/two.c", ""),
            ("drivers/net/a/three.c", ""),
            ("drivers/net/a/c.c", ""),
            ("drivers/net/a/d.c", ""),
        ]);
        let options = BTreeSet::from(["CONFIG_X".to_owned()]);
        let driver = find(folder.path(), &options, "a_b").unwrap();
        assert_eq!(names(&driver), ["one.c", "two.c", "three.c"]);
        assert_eq!(driver.name, "a-b");
        assert_eq!(driver.folders, [folder.path().join("include/x"), folder.path().join("drivers/net/a")]);
        assert_eq!(driver.definitions, ["SIZE=3", "X"]);
        assert_eq!(names(&find(folder.path(), &options, "c").unwrap()), ["c.c"]);
    }

    #[test]
    fn what_cannot_be_found_is_refused_in_a_sentence() {
        let makefile = "obj-m += e1000.o up.o gone.o\nup-y := ../../../etc/passwd.o\n";
        let folder = tree(&[("drivers/net/Makefile", makefile), ("drivers/net/e1000.c", "")]);
        let wrong = |name: &str| find(folder.path(), &BTreeSet::new(), name).unwrap_err();
        assert!(wrong("e100").ends_with("the nearest names are e1000"), "{}", wrong("e100"));
        assert!(wrong("xyz").contains("give its C files instead"));
        assert!(wrong("").contains("no driver ''"));
        assert!(wrong("gone").contains("gone.c is not beside it"));
        assert!(wrong("up").contains("is not beside it"));
        assert!(find(Path::new("/nowhere"), &BTreeSet::new(), "e100").is_err());
    }
}
