//! Builds and guards the hostile module, and runs its attempts in guests.

use crate::verdict::{End, Verdict};
use guardrail_tests::workshop::Workshop;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::{Cache, kbuild, kernels};
use libtest_mimic::Failed;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most guests for one list of attempts: each oops costs one.
const GUESTS: usize = 150;
/// The most guests that end before they try anything.
const BARREN: usize = 3;
/// The longest time without a sign of life: an attempt gets eight seconds.
const SILENCE: Duration = Duration::from_secs(40);

fn folder() -> Result<PathBuf, Failed> {
    Ok(kbuild::folder("tests/fixtures/hostile", "main.c", "GUARDRAIL_HOSTILE")?)
}

/// The text of the module.
pub fn sources() -> Result<String, Failed> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()?)?.map(|file| Ok(file?.path())).collect::<Result<_, Failed>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    let texts = files.iter().map(std::fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(texts.concat())
}

/// The names of all attempts, as the tables of the sources have them.
pub fn names() -> Result<Vec<String>, Failed> {
    let sources = sources()?;
    let tables = sources.split("\nATTEMPTS(").skip(1).filter_map(|rest| rest.split_once(");\n"));
    let each = tables.flat_map(|(table, _)| table.split(" A(").skip(1).chain(table.split("\tA(").skip(1)));
    Ok(each.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect())
}

/// The functions that cannot be guarded.
pub fn refused_functions() -> Result<Vec<String>, Failed> {
    let sources = sources()?;
    let each = sources.split("\nREFUSED(").skip(1);
    Ok(each.filter_map(|rest| Some(format!("refused_{}", rest.split_once(',')?.0))).collect())
}

/// The modules for one kernel.
pub struct Lab {
    kernel: String,
    folder: tempfile::TempDir,
}

impl Lab {
    /// Builds all modules, and guards two of them in domains of their own.
    pub fn new(kernel: &str) -> Result<Lab, Failed> {
        let packages = Packages::new(&Cache::open()?);
        let folder = tempfile::tempdir()?;
        let (copy, tree) = (folder.path().join("sources"), folder.path().join("tree"));
        std::fs::create_dir(&copy)?;
        for file in std::fs::read_dir(self::folder()?)? {
            let file = file?;
            std::fs::copy(file.path(), copy.join(file.file_name()))?;
        }
        let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
        let rest = [tree.as_os_str(), copy.as_os_str()];
        kbuild::run(&packages, &kernels::find(&packages, kernel)?, &script, &[], &rest)?;
        let workshop = Workshop::of(&packages, kernel)?;
        for (domain, name) in [(1, "hostile"), (2, "other")] {
            let path = copy.join(name).with_extension("ko");
            let plan = workshop.modules.plan(path.to_str().ok_or("a plain path")?)?;
            workshop.write(&workshop.guarded_in(domain, &plan, None, &[])??, folder.path())?;
        }
        Ok(Lab { kernel: kernel.to_owned(), folder })
    }

    /// Why the module with code that cannot be guarded is refused, with these functions trusted.
    pub fn is_refused(&self, trusted: &[String]) -> Result<Option<String>, Failed> {
        let packages = Packages::new(&Cache::open()?);
        let workshop = Workshop::of(&packages, &self.kernel)?;
        let path = self.folder.path().join("sources/refused.ko");
        let plan = workshop.modules.plan(path.to_str().ok_or("a plain path")?)?;
        Ok(workshop.guarded(&plan, None, trusted)?.err().map(|error| error.to_string()))
    }

    /// Runs attempts, or all of them where none is named.
    pub fn attempts(&self, names: &[String]) -> Result<Vec<Verdict>, Failed> {
        self.run(names, "0")
    }

    /// Runs what is allowed instead of each.
    pub fn twins(&self, names: &[String]) -> Result<Vec<Verdict>, Failed> {
        self.run(names, "1")
    }

    /// An attempt that ends its guest costs that guest; the next begins behind it.
    fn run(&self, names: &[String], twin: &str) -> Result<Vec<Verdict>, Failed> {
        let wanted = if names.is_empty() { self::names()?.len() } else { names.len() };
        let (mut verdicts, mut barren) = (Vec::<Verdict>::new(), 0);
        for _ in 0..GUESTS {
            let after = verdicts.last().map(|verdict| verdict.name.clone()).unwrap_or_default();
            let (outcome, console) = self.guest(names, twin, &after)?;
            let (found, over) = (read(&console), console.contains("hostile: over"));
            barren += usize::from(found.is_empty() && !over);
            verdicts.extend(found);
            // Each attempt has to be made, or nothing is known of it.
            if over && verdicts.len() == wanted {
                return Ok(verdicts);
            }
            if over || barren == BARREN {
                let made = verdicts.len();
                return Err(format!("{outcome}: {made} attempts of {wanted} were made\n{console}").into());
            }
        }
        Err(format!("{GUESTS} guests ended before all attempts were made: {verdicts:?}").into())
    }

    /// One guest, from behind an attempt on: how it ended, and its console.
    fn guest(&self, names: &[String], twin: &str, after: &str) -> Result<(Outcome, String), Failed> {
        let packages = Packages::new(&Cache::open()?);
        let run = tempfile::tempdir()?;
        let file = |name: &str| self.folder.path().join(name);
        let driver = file("hostile.ko");
        let workload = self::folder()?.join("hostile.sh");
        let plain = |path: &Path| path.to_str().map(str::to_owned).ok_or("a plain path");
        let request = Request {
            driver: &plain(&driver)?,
            kernel: &self.kernel,
            workload: Some(&plain(&workload)?),
            ..Request::default()
        };
        let prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
        let variables = [("TWIN", twin), ("NUMBERS", &names.join(" ")), ("AFTER", after)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let files = vec![
            ("victim.ko".to_owned(), std::fs::read(file("sources/victim.ko"))?),
            ("other.ko".to_owned(), std::fs::read(file("other.ko"))?),
        ];
        let mut options = Options { variables: variables.to_vec(), files, ..Options::new(run.path()) };
        options.limits.silence = SILENCE;
        let ran = guardrail_tests::unwatched(&prepared, options, 400)?;
        // The consoles help to look into attempts that ended their guests.
        if let Some(folder) = std::env::var_os("GUARDRAIL_HOSTILE_CONSOLES") {
            let last = read(&ran.console).pop().map_or("none".to_owned(), |last| last.name);
            std::fs::write(Path::new(&folder).join(last), &ran.console)?;
        }
        Ok((ran.outcome, ran.console))
    }
}

/// The verdicts of a guest, in their order. Of the last that began and did not end, the guest died.
fn read(console: &str) -> Vec<Verdict> {
    let lines: Vec<&str> = console
        .lines()
        .filter_map(|line| line.split_once("hostile: ").map(|(_, rest)| rest.trim_end()))
        .collect();
    let after = |word: &'static str| lines.iter().filter_map(move |line| line.strip_prefix(word));
    let names: BTreeMap<&str, (&str, &str)> = after("name ")
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, (words.next()?, words.next()?)))
        })
        .collect();
    let judge = |number: &str| {
        let (class, name) = names.get(number).copied().unwrap_or(("unknown", number));
        let own = |word: &str| format!("{word} {number} ");
        let log: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(own("log").as_str())).collect();
        match lines.iter().find_map(|line| line.strip_prefix(own("end").as_str())) {
            Some(end) => Verdict::read(class, name, end, &log),
            None => Verdict {
                class: class.to_owned(),
                name: name.to_owned(),
                end: End::Oops,
                log: last_words(console),
            },
        }
    };
    after("begin ").map(judge).collect()
}

/// What the kernel said at its end.
fn last_words(console: &str) -> String {
    let words = ["BUG: ", "Oops", "general protection", "RIP: ", "Kernel panic"];
    let said = console.lines().filter(|line| words.iter().any(|word| line.contains(word)));
    said.take(4).collect::<Vec<_>>().join(" | ")
}
