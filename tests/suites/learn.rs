//! Rows that are derived from kernels' code: the audit of written rows that have no effect, how many modules are
//! covered, and refusals.

use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_learn::{Derived, LearnError, Learned, coverage, idle, read};
use guardrail_tests::guardrail;
use guardrail_vm::Cache;
use guardrail_vm::kernels::{self, Kernel};
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;

/// The kernels, with the least share of their modules for which each function that they call has a row.
const KERNELS: [(&str, f64); 3] = [("6.1", 50.0), ("6.12", 50.0), ("7.2", 40.0)];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("what cannot be derived is refused in a sentence", refused)];
    for (kernel, least) in KERNELS {
        let name = format!("rows are derived, and written ones hold, on {kernel}");
        let trial = Trial::test(name, move || derived(kernel, least));
        trials.push(trial.with_ignored_flag(kernel != "6.1"));
    }
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

fn kernel(name: &str) -> Result<Kernel, Failed> {
    Ok(kernels::find(&Packages::new(&Cache::open()?), name)?)
}

/// One pass over a kernel and its modules serves all that is asked about it.
fn derived(name: &str, least: f64) -> Result<(), Failed> {
    let kernel = kernel(name)?;
    let image = KernelImage::open(&kernel.vmlinuz)?;
    let mut learned = Learned::new(&image);
    let modules = Modules::of(&kernel, &Parser::here())?;
    let (mut files, mut images) = (Vec::new(), Vec::new());
    for module in modules.names() {
        modules.add(module, module, &mut files)?;
        for file in files.drain(images.len()..).collect::<Vec<_>>() {
            let image = ModuleImage::parse(&file.name, file.bytes.clone())?;
            learned.module(&image)?;
            // The list stays, so that no module is read twice.
            files.push(guardrail_vm::modules::ModuleFile { bytes: Vec::new(), ..file });
            images.push(image);
        }
    }
    audit(&learned)?;
    let complete = images.iter().filter(|image| coverage(&learned, image).is_complete()).count();
    let share = 100.0 * complete as f64 / images.len() as f64;
    assert!(share >= least, "{complete} of {} modules are complete: {share:.1}%", images.len());
    let text = learned.text();
    let rows = read("the rows", &text, &image)?;
    assert!(rows.len() > 5000 && rows.iter().all(|row| row.origin.is_some()), "{} rows", rows.len());
    Ok(())
}

/// A written row without effects is wrong where the function writes or frees what is no structure. What stands behind
/// such a row (`# looked at: …`) says why it is right all the same.
fn audit(learned: &Learned) -> Result<(), Failed> {
    let mut wrong = BTreeMap::new();
    for (function, _) in idle().filter(|(_, origin)| origin.is_none()) {
        if let Some(what) = learned.function(function).and_then(Derived::against_nothing) {
            wrong.insert(function, what);
        }
    }
    let lines: Vec<String> =
        wrong.iter().map(|(function, what)| format!("{function}: nothing, but {what}")).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n").into()) }
}

#[track_caller]
fn assert_refused(arguments: &[&str], words: &str) {
    let result = guardrail(arguments);
    let error = result.stderr.lines().last().unwrap_or_default();
    assert_eq!((result.status, result.stdout.as_str()), (2, ""), "{arguments:?}: {error}");
    assert!(error.starts_with("error: ") && error.contains(words), "{arguments:?}: {error}");
}

fn refused() -> Result<(), Failed> {
    let kernel = kernel("6.1")?;
    let image = KernelImage::open(&kernel.vmlinuz)?;
    let head = format!("# guardrail-derived {}\n", guardrail_learn::VERSION);
    let own = format!("{head}# kernel {} {}\n", image.release(), image.build_id().unwrap_or("-"));
    assert!(matches!(read("f", "kfree (a): nothing\n", &image), Err(LearnError::NoHead { .. })));
    assert!(matches!(read("f", "# guardrail-derived 0\n", &image), Err(LearnError::Version { .. })));
    let other = format!("{head}# kernel 5.4.0 abc\n");
    assert!(matches!(read("f", &other, &image), Err(LearnError::Kernel { .. })));
    assert!(matches!(read("f", &format!("{own}f (a): grunt a\n"), &image), Err(LearnError::Table(_))));
    let contradicts = format!("{own}kfree (object): nothing\n");
    let Err(error) = read("f", &contradicts, &image) else {
        return Err("it contradicts a written row".into());
    };
    let error = error.to_string();
    assert!(error.contains("kfree (object): nothing") && error.contains("free object slab|cache"), "{error}");
    assert!(
        read("f", &format!("{own}some_function (a): require_write a 4 # derived: static\n"), &image).is_ok()
    );

    assert_refused(&["learn", "6.1", "--module", "no_such_module"], "no_such_module");
    Ok(())
}
