//! Certifying guarded modules: what is whole is certified, and a guard that was taken out is found.

use guardrail_certify::certify;
use guardrail_tests::neuter::{self, Neutering};
use guardrail_tests::workshop::Workshop;
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;

/// The modules of which guards are taken out.
const DRIVERS: [&str; 4] = ["e1000", "nvme", "vfat", "snd_ens1370"];
const KERNEL: &str = "6.1";
/// The one of them that an ordinary run takes.
const FIRST: &str = "vfat";
/// In an ordinary run every so many-th guard is taken out.
const SAMPLE: usize = 97;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    trials.push(Trial::test(format!("guards taken out of {FIRST} are found"), || neutered(FIRST, SAMPLE)));
    for driver in DRIVERS {
        let all = move || neutered(driver, 1);
        trials.push(
            Trial::test(format!("all guards taken out of {driver} are found"), all).with_ignored_flag(true),
        );
    }
    trials.push(Trial::test("damaged modules are no reason to stop", damaged));
    libtest_mimic::run(&arguments, trials).exit();
}

fn guarded(driver: &str) -> Result<Vec<u8>, Failed> {
    let workshop = Workshop::of(&Packages::new(&Cache::open()?), KERNEL)?;
    let plan = workshop.modules.plan(driver)?;
    Ok(workshop.guarded(&plan, None, &[])??.bytes)
}

/// Takes out every `step`-th guard of each kind. The variable `GUARDRAIL_NEUTER_ONLY` has a part of a place, to look into.
fn neutered(driver: &str, step: usize) -> Result<(), Failed> {
    let file = guarded(driver)?;
    let whole = certify(driver, &file)?;
    assert!(whole.faults.is_empty(), "{driver}: {:#?}", whole.faults);
    let mut kinds: BTreeMap<&str, Vec<Neutering>> = BTreeMap::new();
    let only = std::env::var("GUARDRAIL_NEUTER_ONLY").unwrap_or_default();
    for one in neuter::all(&file)?.into_iter().filter(|one| one.place.contains(&only)) {
        kinds.entry(one.kind).or_default().push(one);
    }
    let mut missed = Vec::new();
    for (kind, all) in &kinds {
        let some: Vec<&Neutering> = all.iter().skip(all.len() % step.min(all.len())).step_by(step).collect();
        let found = guardrail_tests::at_once(&some, 2, |one| {
            certify(driver, &one.apply(&file)).is_ok_and(|certificate| certificate.faults.is_empty())
        });
        let mut escaped = Vec::new();
        let mut idle = 0;
        for one in some.iter().zip(found).filter(|(_, certified)| *certified).map(|(one, _)| *one) {
            let (section, at) = one.code.clone().unwrap_or_default();
            match neuter::idle(&file, &one.apply(&file), &section, at)? {
                true => idle += 1,
                false => escaped.push(one),
            }
        }
        let real = some.len() - idle;
        println!("{driver}: {kind}: {} of {real} found, {idle} change nothing", real - escaped.len());
        missed.extend(escaped.iter().map(|one| format!("{}: {}", one.kind, one.place)));
    }
    assert!(kinds.len() > 10 || !only.is_empty(), "{:?}", kinds.keys());
    assert!(
        missed.is_empty(),
        "{driver}: {} not found:\n{}",
        missed.len(),
        missed[..missed.len().min(40)].join("\n")
    );
    Ok(())
}

fn damaged() -> Result<(), Failed> {
    let file = guarded("vfat")?;
    for at in (0..file.len()).step_by(509) {
        let mut changed = file.clone();
        changed[at] ^= 0x5a;
        let _ = certify("damaged", &changed);
        let _ = certify("cut", &file[..at]);
    }
    Ok(())
}
