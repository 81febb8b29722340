//! Rows of the border that are derived from a kernel's binaries, and where they are kept.

use crate::Confine;
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_host::{HostError, Progress, files, zoo};
use guardrail_learn::{Coverage, LearnError, Learned, coverage};
use guardrail_vm::installed::Target;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::modules::{ModuleFile, Modules};
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The largest file of derived rows that is read.
const MAX_ROWS: u64 = 64 << 20;

/// What to derive rows from.
#[derive(Clone, Debug)]
pub struct LearnPlan {
    /// The kernel by name or path.
    pub kernel: String,
    /// The modules whose functions are described besides the kernel's, with those that they need. All of the
    /// modules of the kernel if this is empty.
    pub modules: Vec<String>,
    /// The file for the rows; `None` where they are printed.
    pub out: Option<PathBuf>,
    /// Whether to find out how many modules have a row for each function that they call.
    pub complete: bool,
}

/// What was derived.
pub struct Learnt {
    learned: Learned,
    /// By module; `None` where the plan does not ask for it.
    covered: Option<Vec<Coverage>>,
}

impl Learnt {
    /// The rows as a file.
    pub fn text(&self) -> String {
        self.learned.text()
    }

    /// The share of modules that have a row for each function that they call, where the plan asks for it.
    pub fn completeness(&self) -> Option<String> {
        let modules = self.covered.as_ref()?;
        let count = modules.len();
        let share = |part: usize, all: usize| 100.0 * part as f64 / all.max(1) as f64;
        let complete = modules.iter().filter(|covered| covered.is_complete()).count();
        let sum =
            |list: fn(&Coverage) -> &Vec<String>| modules.iter().map(|covered| list(covered).len()).sum();
        let [written, derived, none]: [usize; 3] =
            [sum(|c| &c.written), sum(|c| &c.derived), sum(|c| &c.none)];
        let all = written + derived + none;
        let mut text = format!("{count} modules, {complete} complete ({:.1}%)\n", share(complete, count));
        let _ = writeln!(
            text,
            "imports: {written} with a written row ({:.1}%), {derived} with a derived row ({:.1}%), {none} without a row ({:.1}%)",
            share(written, all),
            share(derived, all),
            share(none, all)
        );
        Some(text)
    }
}

/// Derives the rows of a kernel and of modules, and writes them where the plan says. All that is fetched and built is so
/// before `confine` is called, and no module is read before that.
pub fn learn(plan: &LearnPlan, progress: &Progress, confine: &Confine<'_>) -> Result<Learnt, HostError> {
    let cache = guardrail_host::cache()?;
    let packages = Packages::new(&cache);
    progress.step(&plan.kernel);
    let kernel = Target::find(&packages, &plan.kernel)?.kernel;
    let wanted = plan.modules.iter().map(|driver| zoo::provide(&packages, &kernel, driver));
    let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
    // What a module needs may be beside it.
    let given = wanted.iter().map(PathBuf::from).filter(|driver| driver.is_file());
    let given = given.filter_map(|driver| Some(driver.canonicalize().ok()?.parent()?.to_path_buf()));
    let linked = files::linked(&kernel.modules);
    let read: Vec<PathBuf> = linked.into_iter().chain(given).chain([kernel.vmlinuz.clone()]).collect();
    let written: Vec<PathBuf> = plan.out.iter().map(|file| files::place_of_new(file).to_path_buf()).collect();
    confine(&read, &written)?;

    let modules = modules(&kernel, &wanted)?;
    progress.step("the kernel's functions");
    let image = KernelImage::open(&kernel.vmlinuz)?;
    let mut learned = Learned::new(&image);
    progress.step("functions of modules");
    let mut images = Vec::new();
    for module in modules {
        let image = ModuleImage::parse(&module.name, module.bytes)?;
        learned.module(&image).map_err(error)?;
        // A module may call what a later one exports.
        if plan.complete {
            images.push(image);
        }
    }
    let covered = plan.complete.then(|| images.iter().map(|image| coverage(&learned, image)).collect());
    progress.finish();
    let learnt = Learnt { learned, covered };
    if let Some(out) = &plan.out {
        files::write(out, learnt.text())?;
    }
    Ok(learnt)
}

/// The modules that are to be described, each behind those that it needs.
fn modules(kernel: &Kernel, wanted: &[String]) -> Result<Vec<ModuleFile>, HostError> {
    let mut list: Vec<ModuleFile> = Vec::new();
    let all = Modules::of(kernel, &Parser::here())?;
    if wanted.is_empty() {
        for name in all.names() {
            all.add(name, name, &mut list)?;
        }
        return Ok(list);
    }
    for driver in wanted {
        let plan = all.plan(driver)?;
        for module in plan.before.into_iter().chain([plan.driver]) {
            if list.iter().all(|known| known.name != module.name) {
                list.push(module);
            }
        }
    }
    Ok(list)
}

/// Reads a file of rows.
pub(crate) fn text(file: &Path) -> Result<String, HostError> {
    files::text(file, MAX_ROWS, "a file of rows")
}

/// All that can be wrong here is the user's input.
pub(crate) fn error(error: LearnError) -> HostError {
    match error {
        LearnError::Image(error) => error.into(),
        other => HostError::Usage(other.to_string()),
    }
}
