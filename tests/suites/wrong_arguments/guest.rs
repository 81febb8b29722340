//! Builds and guards the module that makes the calls, and runs it in guests.

use crate::functions::{self, Call, Function};
use crate::source;
use crate::verdict::{self, Verdict};
use guardrail_tests::workshop::Workshop;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Start, TcgThreads};
use guardrail_vm::{Cache, kbuild, kernels};
use libtest_mimic::Failed;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Calls that are made one after the other, in as many guests as they need.
const PART: usize = 300;
/// Guests at a time.
const WORKERS: usize = 2;
/// The most guests of a part that end before they call anything.
const BARREN: usize = 3;
/// The longest time without a sign of life of a guest that makes calls: each gets three seconds.
const SILENCE: Duration = Duration::from_secs(12);
/// The longest time of a guest, in seconds.
const TOTAL: u64 = 900;

/// The modules for one kernel.
pub struct Lab {
    kernel: String,
    folder: tempfile::TempDir,
    /// What can be called.
    pub functions: Vec<Function>,
}

fn fixture(name: &str, mark: &str) -> Result<PathBuf, Failed> {
    Ok(kbuild::folder(
        &format!("tests/fixtures/{name}"),
        mark,
        &format!("GUARDRAIL_{}", name.to_uppercase()),
    )?)
}

impl Lab {
    /// Writes the calls, builds all modules, and guards two of them in domains of their own.
    pub fn new(kernel: &str) -> Result<Lab, Failed> {
        let packages = Packages::new(&Cache::open()?);
        let found = kernels::find(&packages, kernel)?;
        let (functions, namespaces) = functions::functions(&packages, &found)?;
        let folder = tempfile::tempdir()?;
        let (copy, tree) = (folder.path().join("sources"), folder.path().join("tree"));
        std::fs::create_dir(&copy)?;
        let (wrong, hostile) = (fixture("wrong", "wrong.h")?, fixture("hostile", "victim.c")?);
        for (from, name) in [(&wrong, "Kbuild"), (&wrong, "main.c"), (&wrong, "wrong.h")]
            .into_iter()
            .chain(["victim.c", "victim.h", "other.c"].map(|name| (&hostile, name)))
        {
            std::fs::copy(from.join(name), copy.join(name))?;
        }
        std::fs::write(copy.join("calls.c"), source::calls(&functions, &namespaces))?;
        let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
        kbuild::run(&packages, &found, &script, &[], &[tree.as_os_str(), copy.as_os_str()])?;
        let workshop = Workshop::of(&packages, kernel)?;
        for (domain, name) in [(1, "wrong"), (2, "other")] {
            let path = copy.join(name).with_extension("ko");
            let plan = workshop.modules.plan(path.to_str().ok_or("a plain path")?)?;
            workshop.write(&workshop.guarded_in(domain, &plan, None, &[])??, folder.path())?;
        }
        let lab = Lab { kernel: kernel.to_owned(), folder, functions };
        lab.save()?;
        Ok(lab)
    }

    /// Makes calls, in guests of their own for each part of the list, and returns the verdicts in its order. What may be the
    /// harm of a call before is made again, alone.
    pub fn run(&self, calls: &[Call], listed: impl Fn(&Verdict) -> bool) -> Result<Vec<Verdict>, Failed> {
        let mut verdicts = self.parts(calls, PART)?;
        let doubtful = |verdict: &Verdict| verdict.is_harmful() && !verdict.certain && !listed(verdict);
        let again: Vec<usize> = (0..calls.len()).filter(|place| doubtful(&verdicts[*place])).collect();
        let alone: Vec<Call> = again.iter().map(|place| calls[*place]).collect();
        for (place, verdict) in again.into_iter().zip(self.parts(&alone, 1)?) {
            verdicts[place] = Verdict { certain: true, ..verdict };
        }
        Ok(verdicts)
    }

    fn parts(&self, calls: &[Call], size: usize) -> Result<Vec<Verdict>, Failed> {
        let parts: Vec<&[Call]> = calls.chunks(size).collect();
        let made = guardrail_tests::at_once(&parts, WORKERS, |part| self.part(part));
        Ok(made.into_iter().collect::<Result<Vec<_>, Failed>>()?.concat())
    }

    /// A call that ends its guest costs that guest; the next begins behind it.
    fn part(&self, calls: &[Call]) -> Result<Vec<Verdict>, Failed> {
        let (mut verdicts, mut barren) = (Vec::<Verdict>::new(), 0);
        while verdicts.len() < calls.len() {
            let rest = &calls[verdicts.len()..];
            let (outcome, console) = self.guest(rest)?;
            let found = verdict::read(&console, &self.kernel, &self.functions, rest);
            barren += usize::from(found.is_empty());
            if barren == BARREN {
                let made = verdicts.len();
                return Err(format!("{outcome}: {made} calls of {} were made\n{console}", calls.len()).into());
            }
            verdicts.extend(found);
        }
        Ok(verdicts)
    }

    /// The guest of one run in a folder, ready to start.
    fn prepare(&self, folder: &Path, calls: &[Call]) -> Result<(Prepared, Options), Failed> {
        let packages = Packages::new(&Cache::open()?);
        let file = |name: &str| self.folder.path().join(name);
        let plain = |path: &Path| path.to_str().map(str::to_owned).ok_or("a plain path");
        let workload = fixture("wrong", "wrong.h")?.join("wrong.sh");
        let request = Request {
            driver: &plain(&file("wrong.ko"))?,
            kernel: &self.kernel,
            workload: Some(&plain(&workload)?),
            ..Request::default()
        };
        let prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
        let list: Vec<String> = calls.iter().map(|call| call.code().to_string()).collect();
        let files = vec![
            ("victim.ko".to_owned(), std::fs::read(file("sources/victim.ko"))?),
            ("other.ko".to_owned(), std::fs::read(file("other.ko"))?),
        ];
        let variables = vec![("CALLS".to_owned(), list.join(" "))];
        let options =
            Options { files, variables, memory_mib: 512, threads: TcgThreads::Multi, ..Options::new(folder) };
        Ok((prepared, options))
    }

    /// Boots a guest, and saves it when it is about to load the module. All others begin there.
    fn save(&self) -> Result<(), Failed> {
        let run = tempfile::tempdir()?;
        let (prepared, options) = self.prepare(run.path(), &[])?;
        let saved = self.saved();
        Ok(guardrail_tests::unobserved(|watch| guardrail_vm::run::save(&prepared, &options, &saved, watch))?)
    }

    fn saved(&self) -> PathBuf {
        self.folder.path().join("saved")
    }

    /// One guest: how it ended, and its console.
    fn guest(&self, calls: &[Call]) -> Result<(String, String), Failed> {
        let run = tempfile::tempdir()?;
        let (prepared, mut options) = self.prepare(run.path(), calls)?;
        options.start = Start::Saved(self.saved());
        options.limits.silence = SILENCE;
        let ran = guardrail_tests::unwatched(&prepared, options, TOTAL)?;
        // The consoles help to look into calls that ended their guests.
        if let Some(folder) = std::env::var_os("GUARDRAIL_WRONG_CONSOLES") {
            std::fs::write(Path::new(&folder).join(format!("{:07}", calls[0].code())), &ran.console)?;
        }
        Ok((ran.outcome.to_string(), ran.console))
    }
}
